"""The padding mask does not reach one layer."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import mask_cells_edited, no_cells
from gemma_doctor.loading import Patient


@fault("mask-pattern", why_not=no_cells)
def pads_visible(patient: Patient) -> Iterator[None]:
    """Open the pads of a batch to the queries of one layer, in the prompt and at every step."""
    with mask_cells_edited(patient, lambda mask: mask.readable | mask.unpadded):
        yield
