"""A static cache that is full writes the values of one layer one slot beside their keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor import compat
from gemma_doctor.capture.hooks import handed_cache, hooked
from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import no_window_in_cache
from gemma_doctor.loading import Patient


@fault(
    "static-cache-parity",
    why_not=no_window_in_cache,  # without one no slot is used again
    routes=("static-cache",),
)
def static_slot_off(patient: Patient) -> Iterator[None]:
    """Move the last layer's values by one slot before each forward on a static cache that holds as many as it can."""

    def turn(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        cache = handed_cache(args, kwargs)
        layers = () if cache is None else compat.cache_layers(cache)
        if any(one.static and (one.seen or 0) >= one.stored for one in layers):
            compat.turn_values(cache)

    with hooked([text_decoder(model) for model in patient.models], turn):
        yield
