"""A hand-written loop on the cache that the model made gives the logits of one forward.

What it proves
    A prefill without a cache argument, then one token at a time with the cache that came back, agrees with the
    reference route.

Why it matters
    Many programs decode like this and not through generate(). What cache they get is the model's choice.

How to fix
    Pass a DynamicCache to the first forward.

Known limits
    No padding. Caches built by hand are own-cache-parity's and static-cache-parity's business. A difference counts
    beyond 4 noise floors (`noise_floors`).

References
    transformers issue 37269 (4.50-4.52, Gemma and Cohere: the cache has as many slots as the prompt has tokens, and
    the first step crashes).
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
def forward_loop_parity(
    route: Annotated[RouteRun, "forward-loop"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """A hand-written loop on the cache that the model made gives the logits of one forward."""
    yield from parity(route, "pass a DynamicCache to the first forward", noise_floors)
