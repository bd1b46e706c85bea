"""Flex attention gives the logits of one forward with eager attention.

What it proves
    The default cache and a left-padded batch, with attn_implementation='flex_attention': the logits agree with the
    reference route.

Why it matters
    Its mask is a function and a table of blocks, built by other code than the masks of other backends.

How to fix
    Use another attn_implementation.

Known limits
    Needs a GPU: on a CPU torch does not compile its decode step. A difference counts beyond 4 noise floors
    (`noise_floors`).

References
    torch.nn.attention.flex_attention, in torch's documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from gemma_doctor.check import check
from gemma_doctor.evidence import RouteRun
from gemma_doctor.finding import Examined, Finding
from gemma_doctor.oracle import FINDING_FLOORS
from gemma_doctor.parity import parity


@check()
def flex_attention_parity(
    route: Annotated[RouteRun, "flex-attention"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """Flex attention gives the logits of one forward with eager attention."""
    yield from parity(route, "use attn_implementation='sdpa' or 'eager'", noise_floors)
