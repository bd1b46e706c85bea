"""generate() called again on the same model object gives the logits of one forward.

What it proves
    A text, another one, and the first again, each by generate() with its default cache, agree with the reference
    route.

Why it matters
    Fixed-size caches are kept on the model between calls; what is left in one of them must not be read by the next
    call. Servers do nothing else than this.

How to fix
    Drop the cache that is kept between calls, if there is one (del model._cache). Otherwise take a release in which
    this check passes.

Known limits
    Three calls, two texts, one after the other; nothing concurrent. cache_implementation='static' is
    static-cache-parity's business. A difference counts beyond 4 noise floors (`noise_floors`).

References
    transformers, generation/utils.py: generate() keeps a fixed-size cache as model._cache (read in 4.50.3 to 5.14.1;
    no more in 5.16.1); up to 4.55 such a cache is the default of Gemma and Cohere.
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
def repeated_generate_parity(
    route: Annotated[RouteRun, "repeated-generate"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """generate() called again on the same model object gives the logits of one forward."""
    yield from parity(
        route, "del model._cache between calls where there is one; compare another transformers release", noise_floors
    )
