"""A cache that is kept in the main memory gives the logits of one forward.

What it proves
    generate(cache_implementation='offloaded') on a GPU: the logits agree with the reference route.

Why it matters
    Keys are copied to and from the GPU while layers run; a copy that is read before it has arrived gives other
    logits, now and then.

How to fix
    Use the default cache.

Known limits
    Needs a GPU. A race may not show in a few steps. A difference counts beyond 4 noise floors (`noise_floors`).

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
def offloaded_cache_parity(
    route: Annotated[RouteRun, "offloaded-cache"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """A cache that is kept in the main memory gives the logits of one forward."""
    yield from parity(route, "use the default cache", noise_floors)
