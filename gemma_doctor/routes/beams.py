from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.evidence import SCORE
from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab

BEAMS = 3


@route("if you search with beams")
def beams(lab: Lab) -> Iterator[Attempt]:
    """Beam search, several sequences returned."""
    for number, text in enumerate(lab.texts()):
        returned = BEAMS if not number else 1
        yield from lab.generate_several(
            text, compared=SCORE, num_beams=BEAMS, num_return_sequences=returned, length_penalty=1.0
        )
