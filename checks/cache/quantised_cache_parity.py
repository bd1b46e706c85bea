"""A quantised cache gives the logits of one forward as long as nothing in it is quantised.

What it proves
    generate(cache_implementation='quantized') with room for the whole text before anything is rounded: the logits agree
    with the reference route.

Why it matters
    Such a cache keeps the last tokens as they are and rounds older ones. Before rounding it must not differ from any
    other; it knows nothing of windows in some releases.

How to fix
    Use the default cache.

Known limits
    The rounding itself, which changes logits by design, is not looked at. Needs optimum-quanto or hqq. A difference
    counts beyond 4 noise floors (`noise_floors`).

References
    transformers documentation, page 'Cache strategies'. From 5.14 on QuantizedCache refuses
    models with sliding layers.
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
def quantised_cache_parity(
    route: Annotated[RouteRun, "quantised-cache"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """A quantised cache gives the logits of one forward as long as nothing in it is quantised."""
    yield from parity(route, "use the default cache", noise_floors)
