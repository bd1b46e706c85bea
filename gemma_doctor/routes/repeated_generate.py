from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you call generate() more than once on the same model object")
def repeated_generate(lab: Lab) -> Iterator[Attempt]:
    """Generate() again on the same model object, with another text and with the first."""
    second, first = next(lab.texts(only=1), None), lab.text(lab.edge + 1, lab.STEPS)
    if first is None or second is None:
        return
    for turn, text in (("first", first), ("second", second), ("third", first)):
        yield lab.generate(text, f"{turn} call")
