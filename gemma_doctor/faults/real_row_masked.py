"""One real token in the middle of a prompt is left without any key."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import mask_tensors_replaced, no_cells
from gemma_doctor.loading import Patient


@fault("all-masked-rows", why_not=no_cells)
def real_row_masked(patient: Patient) -> Iterator[None]:
    """Block a whole row of every prefill mask, in the middle of the first sequence."""

    def block(mask: torch.Tensor) -> torch.Tensor:
        if mask.shape[2] > 1:
            mask = mask.clone()
            mask[0, :, mask.shape[2] // 2] = False if mask.dtype is torch.bool else torch.finfo(mask.dtype).min
        return mask

    with mask_tensors_replaced(patient, block):
        yield
