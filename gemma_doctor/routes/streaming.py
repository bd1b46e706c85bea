from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you stream tokens")
def streaming(lab: Lab) -> Iterator[Attempt]:
    """Generation through a streamer.

    A streamer is handed the tokens and changes nothing in the computation: one text is enough.
    """
    for text in lab.texts(only=1):
        yield lab.streamed(text)
