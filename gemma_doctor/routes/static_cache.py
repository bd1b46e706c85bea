from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor import compat
from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab

SEVERAL = 5  # tokens on either side of the prompt's end, fed at once to a cache that already holds the rest


@route("if you use a static cache")
def static_cache(lab: Lab) -> Iterator[Attempt]:
    """A cache of fixed size, longer than the window."""
    for text in lab.texts():
        yield lab.generate(text, "generate()", cache_implementation="static")
    for text in lab.texts(only=1):
        yield lab.generate(text, "generate() again", cache_implementation="static")
    for text in lab.texts(only=2):
        for name, cache in compat.static_caches(lab.model, len(text.ids)):
            yield lab.feed(text, [text.prompt], f"loop with {name}", cache)
    for text in lab.texts(only=1):
        before = min(SEVERAL, text.prompt - 1)
        for name, cache in compat.static_caches(lab.model, len(text.ids)):
            yield lab.feed(text, [text.prompt - before, before + SEVERAL], f"{name}, several tokens at once", cache)
