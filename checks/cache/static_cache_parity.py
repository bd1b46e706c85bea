"""A cache of fixed size, longer than the window, gives the logits of one forward.

What it proves
    generate(cache_implementation='static'), one text after the other on the same model object and the first once more;
    a hand-written loop over the same kind of cache, for the first two texts; and such a loop that feeds ten tokens at
    once around the end of the first prompt, agree with the reference route. Where the release has a HybridCache for
    the family, that is looped over as well.

Why it matters
    Compiled decoding uses these caches. Their sliding layers are rings of W slots, which are easily turned one step
    too early; masks and keys have different lengths there.

How to fix
    Use the default cache.

Known limits
    One row, no padding. Compiling is compiled-parity's business. A difference counts beyond 4 noise floors
    (`noise_floors`).

References
    transformers issue 37574 (up to 4.51: the ring turns one step early) and pull request 32932 (4.45-4.52: a static
    cache for Gemma 2 and 3 crashes past the window).
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
def static_cache_parity(
    route: Annotated[RouteRun, "static-cache"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """A cache of fixed size, longer than the window, gives the logits of one forward."""
    yield from parity(route, "use the default cache", noise_floors)
