from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab

ROWS = 3


@route("if you run batches of rows without pads", generates=False)
def equal_rows(lab: Lab) -> Iterator[Attempt]:
    """A batch of equal prompts."""
    text = lab.text(lab.edge + 1, lab.STEPS)
    if text is None:
        return
    rows = [text.ids[: text.prompt]] * ROWS
    yield from lab.forward_batch("forward", rows, "left")
    if lab.generates:
        yield from lab.generate_batch("generate()", rows)
