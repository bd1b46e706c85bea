"""Prompt lookup chooses the tokens that the reference route would choose.

What it proves
    The prompt repeats itself, so that tokens are looked up in it, accepted and rejected. Every token that comes out is
    the best one of the reference route, or lies within the noise of it.

Why it matters
    Rejected tokens are taken back out of the cache, as in assisted decoding, without a second model.

How to fix
    Leave prompt_lookup_num_tokens out.

Known limits
    Tokens are compared, not logits: some releases return overlapping blocks of logits. A difference counts beyond 4
    noise floors (`noise_floors`).

References
    transformers issue 46629 (5.0.0, 5.12.0-5.13.1: ValueError out of crop() past the window). Up to 4.52 the fixed-
    size caches of Gemma refuse it.
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
def prompt_lookup_parity(
    route: Annotated[RouteRun, "prompt-lookup"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """Prompt lookup chooses the tokens that the reference route would choose."""
    yield from parity(route, "leave prompt_lookup_num_tokens out, or use another transformers release", noise_floors)
