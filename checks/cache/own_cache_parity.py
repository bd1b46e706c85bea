"""A DynamicCache built by hand gives the logits of one forward.

What it proves
    The logits agree with the reference route: in a hand-written loop over DynamicCache() for the first two texts, over
    DynamicCache(config=...), where the release takes a config, for all; and in generate() with DynamicCache() for the
    first.

Why it matters
    Documentation and tutorials show both. Without a config it keeps every key, and only the mask makes the window;
    with one its sliding layers drop keys, and the mask must shrink with them.

How to fix
    Use the other constructor, or leave the cache to generate().

Known limits
    No padding. A difference counts beyond 4 noise floors (`noise_floors`).

References
    transformers documentation, page 'Cache strategies'.
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
def own_cache_parity(
    route: Annotated[RouteRun, "own-cache"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """A DynamicCache built by hand gives the logits of one forward."""
    yield from parity(route, "leave the cache to generate(), or build it the other way", noise_floors)
