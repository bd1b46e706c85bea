"""A prompt that is fed in chunks gives the logits of one forward over it.

What it proves
    Chunks of several tokens go into a cache that fills, rolls, or is about to: by a hand-written loop over a
    DynamicCache, and by generate()'s own prefill_chunk_size where the release has it, there for the first two texts
    and a left-padded batch. All logits that come back after the first chunk agree with the reference route.

Why it matters
    Long prompts are fed in chunks to save memory. Each chunk needs a mask as wide as the cache and its own tokens
    together, and positions that go on where the last chunk ended, pads not counted.

How to fix
    Leave prefill_chunk_size out, or pad nothing while it is set.

Known limits
    One chunk size, about a third of the window. A loop that leaves the cache to the model is forward-loop-parity's
    business. A difference counts beyond 4 noise floors (`noise_floors`).

References
    transformers issue 43082 (4.51-4.57: the rows of a left-padded batch get wrong positions, silently); 5.0.0 refuses
    the option, since no cache is made (measured).
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
def chunked_prefill_parity(
    route: Annotated[RouteRun, "chunked-prefill"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """A prompt that is fed in chunks gives the logits of one forward over it."""
    yield from parity(route, "leave prefill_chunk_size out, or feed the prompt in one forward", noise_floors)
