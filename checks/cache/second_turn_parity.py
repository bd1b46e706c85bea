"""A second turn on the returned cache gives the logits of one forward over the whole conversation.

What it proves
    The cache that generate() returned is handed back with more tokens, which cross the window's edge in one forward;
    the logits of the tokens after them agree with the reference route over the whole text.

Why it matters
    Chats are run like this. Several new tokens at once meet a cache that already rolls, or is about to: masks and
    positions are computed another way than at single steps.

How to fix
    Read the causes above it, if there are any. Without one: start each turn anew from the whole conversation, or
    generate with a cache that keeps everything.

Known limits
    One conversation of two turns. A cache that was rolled back in between is crop-parity's business, one that holds the
    whole prompt full-cache-parity's. A difference counts beyond 4 noise floors (`noise_floors`).

References
    transformers issue 39593: a chat loop that hands past_key_values back crashes in 4.50-4.52.
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
def second_turn_parity(
    route: Annotated[RouteRun, "second-turn"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """A second turn on the returned cache gives the logits of one forward over the whole conversation."""
    yield from parity(route, "start each turn from the whole conversation, without the old cache", noise_floors)
