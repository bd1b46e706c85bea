"""A cache layer that is full has no place for the next key (transformers issues 31781 and 35711)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor import compat
from gemma_doctor.capture.hooks import handed_cache, hooked
from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.faults import fault, no_window
from gemma_doctor.loading import Patient


@fault("long-generate", why_not=lambda patient: no_window(patient) or compat.why_no_cache_layers())
def cache_crashes_when_full(patient: Patient) -> Iterator[None]:
    """Let one layer of a cache be of another shape from the step on that passes the window."""

    def spoil(decoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        window = compat.window(compat.text_config(decoder)) or 0
        cache = handed_cache(args, kwargs)
        if cache is not None and int(cache.get_seq_length()) >= window:
            compat.spoil_keys(cache)

    with hooked([text_decoder(model) for model in patient.models], spoil):
        yield
