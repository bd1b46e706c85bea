"""generate() with use_cache=False gives the logits of one forward.

What it proves
    Every step computes the whole text anew: the logits agree with the reference route.

Why it matters
    It is the usual advice where a cache is broken. It must then be right itself.

How to fix
    Use the default cache; compare another attn_implementation.

Known limits
    No padding. A difference counts beyond 4 noise floors (`noise_floors`).

References
    transformers issue 45242 (5.5.0: Gemma 4 without a cache).
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
def uncached_generate_parity(
    route: Annotated[RouteRun, "uncached-generate"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """generate() with use_cache=False gives the logits of one forward."""
    yield from parity(route, "use the default cache, or another transformers release", noise_floors)
