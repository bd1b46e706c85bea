"""The mask of one layer masks nothing: zeros where it is added, True everywhere where it is bool."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import mask_cells_edited, no_cells
from gemma_doctor.loading import Patient


@fault("mask-pattern", why_not=no_cells)
def mask_zeroed(patient: Patient) -> Iterator[None]:
    """Open every cell of one layer's mask, the future and pads included."""
    with mask_cells_edited(patient, lambda mask: torch.ones_like(mask.readable)):
        yield
