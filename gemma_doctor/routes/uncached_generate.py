from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you generate with use_cache=False")
def uncached_generate(lab: Lab) -> Iterator[Attempt]:
    """Generate() with use_cache=False."""
    for text in lab.texts():
        yield lab.generate(text, use_cache=False)
