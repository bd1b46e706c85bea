from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.check import NotApplicable
from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you use an offloaded cache", depth="deep")
def offloaded_cache(lab: Lab) -> Iterator[Attempt]:
    """A cache that is kept in the main memory."""
    if lab.patient.device == "cpu":
        raise NotApplicable("it offloads from a GPU, and there is none")
    for text in lab.texts():
        yield lab.generate(text, cache_implementation="offloaded")
