"""The loaded config's window is halved after the weights are in: masks and caches follow, modules do not."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor import compat
from gemma_doctor.faults import fault, no_window
from gemma_doctor.loading import Patient


@fault("sliding-window", why_not=no_window)
def window_halved(patient: Patient) -> Iterator[None]:
    """Halve config.sliding_window of a loaded model."""
    configs = [compat.text_config(model) for model in patient.models]
    before = [config.sliding_window for config in configs]
    for config in configs:
        config.sliding_window //= 2
    try:
        yield
    finally:
        for config, window in zip(configs, before, strict=True):
            config.sliding_window = window
