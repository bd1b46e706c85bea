"""In one layer, the cached values stand one token beside their keys: every key is right, and what is read is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor import compat
from gemma_doctor.capture.hooks import fed_columns, handed_cache, hooked
from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient


@fault("decode-parity", why_not=lambda patient: compat.why_no_cache_layers())
def values_turned(patient: Patient) -> Iterator[None]:
    """Move the last layer's cached values by one token before each decode step."""

    def turn(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        cache = handed_cache(args, kwargs)
        if fed_columns(args, kwargs) == 1 and cache is not None and cache.layers:
            compat.turn_values(cache)

    with hooked([text_decoder(model) for model in patient.models], turn):
        yield
