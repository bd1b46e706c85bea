"""At decode steps the column offset of a mask is off by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch.nn import functional

from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import LayerMask, mask_cells_edited, no_cells
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("mask-pattern", why_not=no_cells)
def mask_shifted_at_decode(patient: Patient) -> Iterator[None]:
    """Move every mask that one layer is handed at a decode step by one column towards older keys."""

    def shift(mask: LayerMask) -> torch.Tensor:
        return functional.pad(mask.readable[..., 1:], (0, 1)) if mask.is_decode_step else mask.readable

    with mask_cells_edited(patient, shift, given_only=True):
        yield
