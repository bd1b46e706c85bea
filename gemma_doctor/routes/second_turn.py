from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you hand the returned cache back for a second turn", depth="quick")
def second_turn(lab: Lab) -> Iterator[Attempt]:
    """A second turn on the returned cache."""
    yield from lab.recorded(lab.passes.second_turn)
