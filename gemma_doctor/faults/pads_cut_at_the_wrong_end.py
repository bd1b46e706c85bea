"""Beyond the window, the padding of a batch is taken from the wrong end of its mask (transformers PR 35681)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import LayerMask, mask_cells_edited, no_sliding_cells
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("mask-pattern", why_not=no_sliding_cells)
def pads_cut_at_the_wrong_end(patient: Patient) -> Iterator[None]:
    """Move the pads of one sliding layer's mask by as many columns as a batch is longer than the window, in prompts."""

    def cut(mask: LayerMask) -> torch.Tensor:
        beyond = len(mask.keys) - mask.window
        if beyond <= 0 or not mask.real.any() or mask.real.all():
            return mask.readable
        return mask.unpadded & mask.real.roll(-beyond, dims=-1)

    with mask_cells_edited(patient, cut):
        yield
