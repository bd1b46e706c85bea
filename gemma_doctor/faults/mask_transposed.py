"""The mask of one layer is built keys by queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import LayerMask, mask_cells_edited, no_cells
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("mask-pattern", why_not=no_cells)
def mask_transposed(patient: Patient) -> Iterator[None]:
    """Exchange queries and keys in every square mask that one layer is handed."""

    def transpose(mask: LayerMask) -> torch.Tensor:
        square = len(mask.queries) == len(mask.keys)
        return mask.readable.transpose(-1, -2) if square else mask.readable

    with mask_cells_edited(patient, transpose, given_only=True):
        yield
