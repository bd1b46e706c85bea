from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.evidence import CHOICES
from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you use assisted decoding")
def assisted(lab: Lab) -> Iterator[Attempt]:
    """Assisted decoding with a small drafter."""
    drafter = lab.drafter()
    for text in lab.texts(more=3):
        yield lab.generate(text, compared=CHOICES, assistant_model=drafter)
