"""A cache that was made for a few windows hides the oldest keys of full layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.evidence import FULL
from gemma_doctor.faults import fault
from gemma_doctor.faults._long_texts import far_out, no_long_text
from gemma_doctor.faults._masks import LayerMask, layers_of_kind, mask_cells_edited, one_kind
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("recall", why_not=lambda patient: no_long_text(patient) or one_kind(patient))
def far_keys_dropped(patient: Patient) -> Iterator[None]:
    """Let full layers, where tokens come to a cache, read no key that lies more than 2.25 windows back."""

    def cut(mask: LayerMask) -> torch.Tensor:
        comes_to_a_cache = int(mask.queries[0]) > 0
        return mask.readable & (mask.back <= far_out(mask.model_window)) if comes_to_a_cache else mask.readable

    with mask_cells_edited(patient, cut, lambda model: layers_of_kind(model, FULL)):
        yield
