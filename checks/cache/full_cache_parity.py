"""A cache that already holds the whole prompt gives the logits of one forward.

What it proves
    The prompt is prefilled by a forward, and prompt and cache are handed to generate(): no token is left to be fed. The
    logits agree with the reference route, or the library refuses.

Why it matters
    Prefix caches are used like this: a prompt is computed once and handed to generate() many times. The last token
    has to be fed again, and must not stand in the cache twice.

How to fix
    Prefill one token less, or crop the cache by one token before generate().

Known limits
    One row of the first two texts. The cache is the one that a forward makes by itself. A difference counts beyond 4
    noise floors (`noise_floors`).

References
    transformers documentation, page 'Cache strategies: prefill a cache': it leaves the last tokens to generate(). In
    5.24 the whole prompt is fed a second time, silently (measured).
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
def full_cache_parity(
    route: Annotated[RouteRun, "full-cache"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """A cache that already holds the whole prompt gives the logits of one forward."""
    yield from parity(route, "prefill all of the prompt but its last token", noise_floors)
