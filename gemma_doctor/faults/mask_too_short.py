"""Masks have one column less than there are keys."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import mask_tensors_replaced, no_cells
from gemma_doctor.loading import Patient


@fault("mask-shape", why_not=no_cells)
def mask_too_short(patient: Patient) -> Iterator[None]:
    """Cut the oldest column off every mask that the attention modules receive."""
    with mask_tensors_replaced(patient, lambda mask: mask[..., 1:]):
        yield
