"""The mask of one sliding layer knows no window."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import mask_cells_edited, no_sliding_cells
from gemma_doctor.loading import Patient


@fault("mask-pattern", why_not=no_sliding_cells)
def window_ignored(patient: Patient) -> Iterator[None]:
    """Let every query of one sliding layer read everything before it, in prompts."""
    with mask_cells_edited(patient, lambda mask: mask.without_window):
        yield
