"""The loaded config's window is halved after the weights are in: masks and caches follow, modules do not."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor import compat
from gemma_doctor.faults import fault, no_window
from gemma_doctor.loading import Patient
from gemma_doctor.undone import attributes_set


@fault("sliding-window", why_not=no_window)
def window_halved(patient: Patient) -> Iterator[None]:
    """Halve config.sliding_window of a loaded model."""
    configs = [compat.text_config(model) for model in patient.models]
    with attributes_set([(config, "sliding_window", config.sliding_window // 2) for config in configs]):
        yield
