from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.routes import BY_NAME, route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you hand generate() a cache that already holds the whole prompt", depth=BY_NAME)
def full_cache(lab: Lab) -> Iterator[Attempt]:
    """A cache that already holds the whole prompt."""
    for text in lab.texts(only=2):
        yield lab.generate(text, cache=lab.filled_cache(text))
