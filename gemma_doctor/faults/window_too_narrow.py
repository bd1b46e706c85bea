"""The mask of one layer is one key short."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import mask_cells_edited, no_sliding_cells
from gemma_doctor.loading import Patient


@fault("mask-pattern", why_not=no_sliding_cells)
def window_too_narrow(patient: Patient) -> Iterator[None]:
    """Block the oldest key of the window in one layer, in prompts and at every step."""
    with mask_cells_edited(patient, lambda mask: mask.readable & (mask.back < mask.window - 1)):
        yield
