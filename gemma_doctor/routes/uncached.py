from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you run forwards without a cache, as scoring does", generates=False)
def uncached(lab: Lab) -> Iterator[Attempt]:
    """One forward without a cache, in the subject's own backend and dtype."""
    for text in lab.texts():
        yield lab.forward(text)
    if lab.generates:
        yield from lab.recorded(lab.passes.scored)
