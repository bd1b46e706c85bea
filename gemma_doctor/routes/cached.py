from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you generate with a cache, as generate() does by default", depth="quick")
def cached(lab: Lab) -> Iterator[Attempt]:
    """Step by step with the library's own cache."""
    yield from lab.recorded(*lab.passes.prompts())
