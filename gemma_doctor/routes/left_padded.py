from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you run left-padded batches", depth="quick")
def left_padded(lab: Lab) -> Iterator[Attempt]:
    """Rows of a left-padded batch."""
    yield from lab.recorded(lab.passes.batch.recorded.name)
    yield from lab.forward_batch("forward with position_ids", lab.written_rows, "left", positions=True)
