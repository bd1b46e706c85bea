"""One cell above the diagonal of one mask is open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import LayerMask, mask_cells_edited, no_cells
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("mask-pattern", why_not=no_cells)
def future_cell(patient: Patient) -> Iterator[None]:
    """Let one query in the middle of every prompt read the token after it, in one layer."""

    def open_next(mask: LayerMask) -> torch.Tensor:
        middle = mask.queries[len(mask.queries) // 2]
        return mask.readable | ((mask.queries == middle) & (mask.keys == middle + 1))

    with mask_cells_edited(patient, open_next):
        yield
