"""A sliding cache layer keeps the memory of every key that it has dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor import compat
from gemma_doctor.capture.hooks import handed_cache, hooked
from gemma_doctor.faults import fault, last_attention_of, no_window
from gemma_doctor.finding import Severity
from gemma_doctor.loading import Patient


@fault(
    "cache-growth",
    why_not=lambda patient: no_window(patient) or compat.why_no_cache_layers(),
    severity=Severity.WARNING,
)
def dropped_keys_kept(patient: Patient) -> Iterator[None]:
    """Let layer 0 of every cache hold its keys as a view of all that it has seen."""

    def keep(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        cache = handed_cache(args, kwargs)
        if cache is not None and cache.layers:
            compat.keep_dropped_keys(cache, 0)

    # when the last module is entered, layer 0 has stored this forward's keys
    with hooked(last_attention_of(patient), keep):
        yield
