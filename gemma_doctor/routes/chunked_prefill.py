from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor import compat
from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you feed a prompt in chunks, or set prefill_chunk_size")
def chunked_prefill(lab: Lab) -> Iterator[Attempt]:
    """A prompt in chunks of several tokens across the edge."""
    chunk = lab.edge // 3 + 1  # divides neither window nor prompt, so that the last chunk is a short one
    for text in lab.texts():
        pieces = [chunk] * (text.prompt // chunk) + [text.prompt % chunk]
        yield lab.feed(text, pieces, "by hand", compat.dynamic_cache(lab.model))
    if not compat.has_generation_option("prefill_chunk_size"):
        return
    for text in lab.texts(only=2):
        yield lab.generate(text, "prefill_chunk_size", prefill_chunk_size=chunk)
    yield from lab.generate_batch("padded", lab.rows, prefill_chunk_size=chunk)
