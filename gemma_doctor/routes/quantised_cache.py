from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor import compat
from gemma_doctor.check import NotApplicable
from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you use a quantised cache", depth="deep")
def quantised_cache(lab: Lab) -> Iterator[Attempt]:
    """A quantised cache."""
    for text in lab.texts():
        try:
            options = compat.quantised_cache_options(len(text.ids) + 1)
        except LookupError as error:
            raise NotApplicable(str(error)) from error
        yield lab.generate(text, **options)
