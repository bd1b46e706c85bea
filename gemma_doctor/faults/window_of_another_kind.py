"""A full layer is given the window of the sliding ones."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import mask_cells_edited, one_full_layer, one_kind
from gemma_doctor.loading import Patient


@fault("mask-pattern", why_not=one_kind)
def window_of_another_kind(patient: Patient) -> Iterator[None]:
    """Block in one full layer what lies beyond the window of the sliding layers, in prompts and at every step."""
    with mask_cells_edited(patient, lambda mask: mask.readable & (mask.back < mask.model_window), one_full_layer):
        yield
