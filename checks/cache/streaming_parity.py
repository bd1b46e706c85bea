"""Streamed tokens are those that generate() returns, with the logits of one forward.

What it proves
    What a streamer was handed, prompt and new tokens, is the text whose logits generate() returned: they agree with
    the reference route over the streamed tokens, across the window's edge.

Why it matters
    A streamer changes nothing in the computation; a token that is lost or handed over twice would be seen by users
    only.

How to fix
    Read the tokens from what generate() returns.

Known limits
    Ids, not text: what a tokenizer makes of them piece by piece is not looked at. One text. A difference counts beyond
    4 noise floors (`noise_floors`).

References
    transformers documentation, page 'Text generation: streaming'.
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
def streaming_parity(
    route: Annotated[RouteRun, "streaming"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """Streamed tokens are those that generate() returns, with the logits of one forward."""
    yield from parity(route, "read the tokens from what generate() returns", noise_floors)
