"""Beam search gives the log-probabilities of one forward over each sequence.

What it proves
    Three beams; of the first text all three sequences are returned, of the others one. The score of each is the sum of
    its tokens' log-probabilities in the reference route.

Why it matters
    Beams are rows of one batch that are reordered after every step, and with them every row of the cache.

How to fix
    Use num_beams=1.

Known limits
    Whether a better sequence was missed is not looked at. The score is one number a sequence: a finding names its first
    new token, wherever the deviation began. A difference counts beyond 4 noise floors (`noise_floors`).

References
    transformers issue 37574 (up to 4.51 the scores are off as the cached logits are).
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
def beams_parity(
    route: Annotated[RouteRun, "beams"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """Beam search gives the log-probabilities of one forward over each sequence."""
    yield from parity(route, "use num_beams=1", noise_floors)
