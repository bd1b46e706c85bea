"""generate() called again on the same model object gives the logits of one forward.

What it proves
    A text, another one, and the first again, each by generate() with its default cache, agree with the reference
    route.

Why it matters
    Fixed-size caches are kept on the model between calls; what is left in one of them must not be read by the next
    call. Servers do nothing else than this.

How to fix
    Use the default cache, or a new model object (del model._cache).

Known limits
    Three calls, two texts, one after the other; nothing concurrent. Static caches, which
    some releases keep on the model, are static-cache-parity's business.

References
    known-faults lesson 5: call generate twice on the same model object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from gemma_doctor.check import check
from gemma_doctor.evidence import RouteRun
from gemma_doctor.finding import Examined, Finding
from gemma_doctor.parity import parity


@check()
def repeated_generate_parity(route: Annotated[RouteRun, "repeated-generate"]) -> Iterator[Finding | Examined]:
    """generate() called again on the same model object gives the logits of one forward."""
    yield from parity(route, "use the default cache for every call")
