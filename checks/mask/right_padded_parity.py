"""The rows of a right-padded batch give the logits of each row alone.

What it proves
    Rows of unequal length are padded on the right and run in one forward with their mask; the logits of the last real
    tokens of every row agree with the reference route over the row alone.

Why it matters
    Texts are scored and embedded like this. Real tokens stand at the same columns as alone and see no pad: nothing
    may differ.

How to fix
    Run the rows alone, or in groups of equal length.

Known limits
    One forward. Generating from right-padded rows is wrong by design: padding-side says so. A difference counts beyond
    4 noise floors (`noise_floors`).

References
    transformers pull request 29419.
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
def right_padded_parity(
    route: Annotated[RouteRun, "right-padded"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """The rows of a right-padded batch give the logits of each row alone."""
    yield from parity(route, "run the rows alone, or in groups of equal length", noise_floors)
