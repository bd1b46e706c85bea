from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gemma_doctor import compat
from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you build the DynamicCache yourself")
def own_cache(lab: Lab) -> Iterator[Attempt]:
    """A DynamicCache built by hand."""
    for way, model in ways(lab):
        for text in lab.texts(only=None if model is lab.model else 2):
            yield lab.feed(text, [text.prompt], f"loop with {way}", compat.dynamic_cache(model))
    for text in lab.texts(only=1):
        yield lab.generate(text, "generate() with DynamicCache()", cache=compat.dynamic_cache())


def ways(lab: Lab) -> Iterator[tuple[str, Any]]:
    """How this release lets one be built, in words, and the model whose config it gets."""
    yield "DynamicCache()", None
    if compat.dynamic_cache_takes_config():
        yield "DynamicCache(config=...)", lab.model
