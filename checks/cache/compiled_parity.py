"""Compiled decode steps with a static cache give the logits of one forward.

What it proves
    The prompt is prefilled as it is; the steps across the window's edge run through torch.compile with a static
    cache. The logits agree with the reference route.

Why it matters
    A compiled step is specialised on what it saw when it was compiled: a length or a position that became a constant
    there is wrong at the next step.

How to fix
    Do not compile, or compile with dynamic=True.

Known limits
    Two steps around the edge, of one text, since each may be compiled anew. On a CPU torch's backend aot_eager is used,
    which traces as the default one does and generates no code; on a GPU the default. A difference counts beyond 4 noise
    floors (`noise_floors`).

References
    transformers issue 44609 (static sliding layers are compiled anew at steps around the edge).
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
def compiled_parity(
    route: Annotated[RouteRun, "compiled"], *, noise_floors: float = FINDING_FLOORS
) -> Iterator[Finding | Examined]:
    """Compiled decode steps with a static cache give the logits of one forward."""
    yield from parity(route, "do not compile the decode step", noise_floors)
