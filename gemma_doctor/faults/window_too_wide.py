"""The mask of one layer blocks `query - key > W`: the window is one key too wide."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import mask_cells_edited, no_sliding_cells
from gemma_doctor.loading import Patient


@fault("mask-pattern", why_not=no_sliding_cells)
def window_too_wide(patient: Patient) -> Iterator[None]:
    """Let every query of one layer read one key more than the window, in prompts."""
    with mask_cells_edited(patient, lambda mask: mask.readable | ((mask.back == mask.window) & mask.real)):
        yield
