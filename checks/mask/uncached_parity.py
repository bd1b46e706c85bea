"""One forward without a cache gives the logits of the reference route.

What it proves
    The subject as it is (its attention backend, its dtype) computes each text in one forward with use_cache=False, and
    is held against float32 and eager attention.

Why it matters
    Texts are scored, embedded and trained on like this. Backends differ in what they can express: a score that eager
    attention caps may be left uncapped by another.

How to fix
    Set attn_implementation to one that this run found right, or use the release named in the finding.

Known limits
    Where the subject runs eager in float32 itself, both sides are the same computation, but for families that share
    keys between layers: their reference is a cached prefill. A difference counts beyond 4 noise floors
    (`noise_floors`).

References
    transformers issue 32848 (4.42-5.20: sdpa leaves out Gemma 2's soft-capping of scores) and 45242 (5.5.0: Gemma 4
    without a cache).
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
def uncached_parity(
    route: Annotated[RouteRun, "uncached"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """One forward without a cache gives the logits of the reference route."""
    yield from parity(
        route, "set attn_implementation to one that is right, or use another transformers release", noise_floors
    )
