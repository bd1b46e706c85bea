from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you write the decode loop yourself and leave the cache to the model")
def forward_loop(lab: Lab) -> Iterator[Attempt]:
    """A hand-written loop that hands on the cache that the model makes."""
    for text in lab.texts():
        yield lab.feed(text, [text.prompt])
