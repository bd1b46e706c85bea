"""The rows of a left-padded batch give the logits of each row alone.

What it proves
    Rows of unequal length are padded on the left: in generate(), and in one forward with position_ids that count each
    row's own tokens. The logits of every row agree with those of the reference route over the row alone. Where the
    tokenizer pads on the left the recorded padded batch is what is looked at.

Why it matters
    Batches are run like this. Pads must be hidden by the mask and left out of the positions; a row that can see one
    token more or less than alone differs without an error, most of all once the batch has crossed the window while
    the row has not.

How to fix
    Read the causes above it. Without one: run the rows alone, or in groups of equal length.

Known limits
    Rows of pads that see nothing may hold NaN on some devices: all-masked-rows looks at the mask itself. A difference
    counts beyond 4 noise floors (`noise_floors`).

References
    transformers pull requests 47678 and 35681; folklore has it that left padding cuts a row off from its context,
    which is false where the mask is passed (measured).
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
def left_padded_parity(
    route: Annotated[RouteRun, "left-padded"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """The rows of a left-padded batch give the logits of each row alone."""
    yield from parity(route, "run the rows alone, or in groups of equal length", noise_floors)
