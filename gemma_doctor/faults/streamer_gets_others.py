"""A streamer is handed other tokens than generate() returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor.faults import fault
from gemma_doctor.faults._generation import generate_watched
from gemma_doctor.loading import Patient


class _Shifted:
    """Hands every id on as the one before it."""

    def __init__(self, streamer: Any) -> None:
        self._streamer = streamer

    def put(self, ids: Any) -> None:
        self._streamer.put((ids - 1).clamp(min=0))

    def end(self) -> None:
        self._streamer.end()


@fault("streaming-parity", routes=("streaming",))
def streamer_gets_others(patient: Patient) -> Iterator[None]:
    """Stream the id before each one."""

    def shift(_ids: Any, options: dict[str, Any]) -> None:
        if options.get("streamer") is not None:
            options["streamer"] = _Shifted(options["streamer"])

    with generate_watched(patient, shift):
        yield
