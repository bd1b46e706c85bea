from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you use flex_attention", depth="deep")
def flex_attention(lab: Lab) -> Iterator[Attempt]:
    """Cached generation with flex attention."""
    flex = lab.attending("flex_attention")
    for text in lab.texts():
        yield flex.generate(text)
    yield from flex.generate_batch("padded", lab.rows)
