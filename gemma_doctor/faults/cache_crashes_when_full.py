"""A cache layer that is full has no place for the next key (transformers issues 31781 and 35711)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor import compat
from gemma_doctor.capture.hooks import Fed, hooked
from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import no_window_in_cache
from gemma_doctor.loading import Patient


@fault("long-generate", why_not=no_window_in_cache)
def cache_crashes_when_full(patient: Patient) -> Iterator[None]:
    """Let one layer of a cache be of another shape from the step on that passes the window."""

    def spoil(decoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        fed, window = Fed.of(decoder, args, kwargs), compat.window(compat.text_config(decoder))
        if window and fed.start >= window:
            compat.spoil_keys(fed.cache)

    with hooked([text_decoder(model) for model in patient.models], spoil):
        yield
