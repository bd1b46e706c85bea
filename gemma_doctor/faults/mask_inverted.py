"""The mask of one layer says True where a key is blocked, as in torch.nn.MultiheadAttention."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import mask_cells_edited, no_cells
from gemma_doctor.loading import Patient


@fault("mask-pattern", why_not=no_cells)
def mask_inverted(patient: Patient) -> Iterator[None]:
    """Exchange what may and what may not be read in every mask that one layer is handed."""
    with mask_cells_edited(patient, lambda mask: ~mask.readable, given_only=True):
        yield
