"""Every row of a batch of equal prompts gives the logits of the prompt alone.

What it proves
    Three rows with the same W+1 tokens, without pads: one forward, and generate(). The logits of every row agree with
    the reference route over one of them.

Why it matters
    A mask of nothing but ones is left out by some releases, and another kernel runs then. Rows that differ from each
    other point at a cache or mask of the wrong row.

How to fix
    Run the rows alone.

Known limits
    Three rows. A difference counts beyond 4 noise floors (`noise_floors`).

References
    transformers issue 36536 (what a batch may and may not change).
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
def equal_rows_parity(
    route: Annotated[RouteRun, "equal-rows"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """Every row of a batch of equal prompts gives the logits of the prompt alone."""
    yield from parity(route, "run the rows alone", noise_floors)
