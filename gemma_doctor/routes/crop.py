from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor import compat
from gemma_doctor.check import NotApplicable
from gemma_doctor.routes import route
from gemma_doctor.routes.own_cache import ways

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab

BACK = 3  # tokens; what is decoded after them is the same text again


@route("if you roll the cache back with crop()")
def crop(lab: Lab) -> Iterator[Attempt]:
    """Decoding on after the cache was rolled back by its own crop()."""
    for way, model in ways(lab):
        for text in lab.texts(only=None if model is lab.model else 1):
            cache = compat.dynamic_cache(model)
            try:
                compat.make_croppable(cache)
            except LookupError as error:
                raise NotApplicable(str(error)) from error
            yield lab.feed(text, [text.prompt, *[1] * (text.new - 1), -BACK], way, cache)
