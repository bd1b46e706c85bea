from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you run right-padded batches", generates=False)
def right_padded(lab: Lab) -> Iterator[Attempt]:
    """One forward over a right-padded batch."""
    yield from lab.forward_batch("right-padded", lab.written_rows, "right")
