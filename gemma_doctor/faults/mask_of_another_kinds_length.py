"""A full layer is given the mask that was built for the shorter keys of the sliding ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import LayerMask, mask_cells_edited, one_full_layer, one_kind
from gemma_doctor.faults._positions import no_decode_step
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("mask-shape", why_not=lambda patient: one_kind(patient) or no_decode_step(patient))
def mask_of_another_kinds_length(patient: Patient) -> Iterator[None]:
    """Size the mask of one full layer by the keys that sliding layers are handed, once those have dropped some."""

    def shorten(mask: LayerMask) -> torch.Tensor:
        fed = len(mask.queries)
        width = min(mask.total - fed, mask.model_window - 1) + fed
        if width == mask.total:
            return mask.readable
        columns = mask.last(width)
        return mask.cells(mask.model_window, columns) & mask.real_at(columns)

    with mask_cells_edited(patient, shorten, one_full_layer):
        yield
