"""Sliding cache layers keep every key and hand all of them over: the masks hide them, and the memory is gone."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import no_keys_dropped, no_layers_that_drop_keys
from gemma_doctor.finding import Severity
from gemma_doctor.loading import Patient


@fault("cache-growth", why_not=no_layers_that_drop_keys, severity=Severity.WARNING)
def never_evicted(patient: Patient) -> Iterator[None]:
    """Make sliding cache layers for a window that no text fills."""
    with no_keys_dropped():
        yield
