"""Generation with the library's own cache gives the logits of one forward over the same tokens.

What it proves
    The next-token logits of every step agree with those of the reference route: one float32, eager, uncached forward
    over the very tokens that came out.

Why it matters
    This is what everyone runs. A key that is dropped or kept too long, a position that is off, or a mask of another
    width at decode steps changes every later token without an error.

How to fix
    Read the causes above it, if there are any: they say which link is broken. If only this check fails, see which layer
    differs first; `use_cache=False` or another backend may be right (the finding says what was measured).

Known limits
    When both sides are wrong together (a window lost everywhere), parity sees nothing: sliding-window, mask-pattern and
    visible-keys look at what is read. Differences below four noise floors are no findings. A difference counts beyond 4
    noise floors (`noise_floors`).

References
    transformers issue 37574 (the first 4.51 releases: logits off by 2.06 from total length W on, silent).
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
def cache_parity(
    route: Annotated[RouteRun, "cached"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """Generation with a cache gives the logits of one forward over the same tokens."""
    yield from parity(route, "see the other findings; compare another transformers release", noise_floors)
