"""Flash attention gives the logits of one forward, to within the rounding of bfloat16.

What it proves
    The default cache and a left-padded batch, with attn_implementation='flash_attention_2' and the weights in
    bfloat16: the logits lie no farther from the float32 reference than four times what one plain forward of the same
    weights does.

Why it matters
    It takes no mask: window and padding are arguments of their own, and a window argument that is off by one changes
    every later token.

How to fix
    Use another attn_implementation.

Known limits
    Needs a GPU and the flash_attn package. Of the window's argument flash-window reads more, on any machine. A mixture
    of experts is left out. A difference counts beyond 4 noise floors (`noise_floors`).

References
    transformers issue 39408 (4.34-4.55: one token too many in the window).
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
def flash_attention_parity(
    route: Annotated[RouteRun, "flash-attention"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """Flash attention gives the logits of one forward, to within the rounding of bfloat16."""
    yield from parity(route, "use attn_implementation='sdpa' or 'eager'", noise_floors)
