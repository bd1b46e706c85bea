"""In one layer, the cached values stand one token beside their keys: every key is right, and what is read is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor import compat
from gemma_doctor.capture.hooks import Fed, hooked
from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import no_cache_layers
from gemma_doctor.loading import Patient


@fault("decode-parity", why_not=no_cache_layers)
def values_turned(patient: Patient) -> Iterator[None]:
    """Move the last layer's cached values by one token before each decode step."""

    def turn(decoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        fed = Fed.of(decoder, args, kwargs)
        if fed.is_decode_step:
            compat.turn_values(fed.cache)

    with hooked([text_decoder(model) for model in patient.models], turn):
        yield
