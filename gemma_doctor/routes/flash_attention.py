from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you use flash_attention_2", depth="deep")
def flash_attention(lab: Lab) -> Iterator[Attempt]:
    """Cached generation with flash attention, in bfloat16."""
    flash = lab.attending("flash_attention_2").in_dtype("bfloat16")
    for text in lab.texts():
        yield flash.generate(text)
    yield from flash.generate_batch("padded", lab.rows)
