"""A static cache that is full writes the values of one layer one slot beside their keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor import compat
from gemma_doctor.capture.hooks import hooked
from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient


@fault("static-cache-parity", why_not=lambda patient: compat.why_no_cache_layers(), routes=("static-cache",))
def static_slot_off(patient: Patient) -> Iterator[None]:
    """Move the last layer's values by one slot before each forward on a static cache that holds as many as it can."""

    def turn(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for value in (*args, *kwargs.values()):
            if compat.is_cache(value) and any(
                one.static and (one.seen or 0) >= one.stored for one in compat.cache_layers(value)
            ):
                compat.turn_values(value)

    with hooked([text_decoder(model) for model in patient.models], turn):
        yield
