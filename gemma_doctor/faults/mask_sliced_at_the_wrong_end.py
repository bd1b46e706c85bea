"""A mask over all columns is cut to the keys that a sliding cache still holds, from the wrong end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import no_layers_that_drop_keys
from gemma_doctor.faults._masks import LayerMask, mask_cells_edited, no_cells
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("mask-pattern", why_not=lambda patient: no_cells(patient) or no_layers_that_drop_keys(patient))
def mask_sliced_at_the_wrong_end(patient: Patient) -> Iterator[None]:
    """Give one sliding layer the first columns of a mask over all, where it needs the last, once keys were dropped."""

    def cut(mask: LayerMask) -> torch.Tensor:
        if mask.total <= len(mask.keys):
            return mask.readable
        every = mask.last(mask.total)
        return (mask.cells(mask.window, every) & mask.real_at(every))[..., : len(mask.keys)]

    with mask_cells_edited(patient, cut):
        yield
