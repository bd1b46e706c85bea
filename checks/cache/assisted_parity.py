"""Assisted decoding chooses the tokens that the reference route would choose.

What it proves
    A small model drafts five tokens at a time, some of them wrong, so that the cache is rolled back within and past
    the window. Every token that comes out is the best one of the reference route, or lies within the noise of it. The
    drafter is the model itself with some noise on its weights.

Why it matters
    A rejected draft is taken back out of the cache. A sliding layer has by then dropped the keys that would have to
    come back, unless it was told to keep them.

How to fix
    Leave assistant_model out, or take a release in which this check passes.

Known limits
    Tokens are compared, not logits: some releases return overlapping blocks of logits. The drafter is a second copy of
    the weights: real ones are copied only if the route is declared, else it runs on a skeleton. It has the model's own
    tokenizer. A difference counts beyond 4 noise floors (`noise_floors`).

References
    transformers issue 46629 (5.0.0, 5.12.0-5.13.1: ValueError out of crop() past the window) and pull request 48280
    (5.15-5.17: keys and mask disagree from the second drafted token on).
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
def assisted_parity(
    route: Annotated[RouteRun, "assisted"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """Assisted decoding chooses the tokens that the reference route would choose."""
    yield from parity(route, "leave assistant_model out, or use another transformers release", noise_floors)
