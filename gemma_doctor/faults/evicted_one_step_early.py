"""Sliding cache layers drop the oldest key one step early: at length W token 0 is gone (transformers issue 37574)."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor import compat
from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import no_layers_that_drop_keys
from gemma_doctor.loading import Patient


@fault("past-key-length", why_not=no_layers_that_drop_keys)
def evicted_one_step_early(patient: Patient) -> Iterator[None]:
    """Make sliding cache layers for a window of W-1."""
    with compat.sliding_layers_made_for(lambda window: window - 1):
        yield
