from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you run the weights in bfloat16", depth="deep")
def bfloat16(lab: Lab) -> Iterator[Attempt]:
    """Cached generation with the weights in bfloat16."""
    half = lab.in_dtype("bfloat16")
    for text in lab.texts():
        yield half.generate(text)
