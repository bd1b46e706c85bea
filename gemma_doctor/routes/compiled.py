from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor import compat
from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab

# To the edge and over it: the first steps are compiled, which takes seconds each, and the last must not be.
STEPS = 7


@route("if you compile the decode step", depth="deep")
def compiled(lab: Lab) -> Iterator[Attempt]:
    """Decode steps by torch.compile, with a static cache."""
    text = lab.text(lab.edge - 1, STEPS)
    if text is None:
        return
    for name, cache in compat.static_caches(lab.model, len(text.ids)):
        yield lab.feed_compiled(text, name, cache)
