"""Cached generation in bfloat16 gives the logits of one forward, to within its own rounding.

What it proves
    A copy of the model with its weights in bfloat16 generates with the default cache. Its logits lie no farther from
    the float32 reference than four times what one plain forward of the same copy does; none is NaN or infinite.

Why it matters
    Most models are run in bfloat16. Positions, frequencies and masks that are rounded with the weights are off by
    whole tokens at long distances.

How to fix
    Read the causes above it, if there are any. Without one: use float32, or another half precision.

Known limits
    Of a skeleton the weights are random: activations of the real size are not reached. A mixture of experts is left
    out: rounding lets tokens choose other experts. Parameters and persistent buffers are converted, as
    from_pretrained(dtype=...) does; `.to()` would round the frequencies as well. A difference counts beyond 4 noise
    floors (`noise_floors`).

References
    transformers issue 25681 (frequencies of rotary embeddings rounded by a cast of the whole model).
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
def bfloat16_parity(
    route: Annotated[RouteRun, "bfloat16"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """Cached generation in bfloat16 gives the logits of one forward, to within its own rounding."""
    yield from parity(route, "use float32, or another half precision", noise_floors)
