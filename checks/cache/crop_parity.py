"""Decoding on after crop() gives the logits of one forward.

What it proves
    A DynamicCache is decoded past the window, rolled back by three tokens with its crop(), and decoded on: the logits
    agree with the reference route. DynamicCache(), which keeps every key, for the first text;
    DynamicCache(config=...), where the release takes a config, for all. Where a cache has to be told to remember what
    it drops, it is.

Why it matters
    Editing the last tokens, trying several continuations and speculative decoding all roll a cache back. A sliding
    layer that has dropped the keys cannot bring them back.

How to fix
    Build the cache without a config: it keeps every key. Or prefill anew.

Known limits
    A crop() that refuses in words is a note. The same three tokens are fed again. Static caches have no crop() in most
    releases. A difference counts beyond 4 noise floors (`noise_floors`).

References
    transformers pull request 45745 (static layers) and 48280 (5.15-5.17: mask and keys disagree after several
    tokens).
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
def crop_parity(
    route: Annotated[RouteRun, "crop"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """Decoding on after crop() gives the logits of one forward."""
    yield from parity(route, "build the cache as DynamicCache() without a config, or prefill anew", noise_floors)
