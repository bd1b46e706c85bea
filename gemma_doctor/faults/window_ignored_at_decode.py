"""Sliding cache layers drop nothing, and at decode steps, where a single query reads, the masks know no window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor import compat
from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import LayerMask, mask_edited, no_sliding_cells, sliding_layers
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch

FILLED_BY_NONE = 2**30


@fault(
    "mask-pattern", why_not=lambda patient: no_sliding_cells(patient) or compat.why_no_sliding_layers(patient.reduced)
)
def window_ignored_at_decode(patient: Patient) -> Iterator[None]:
    """Let sliding layers keep every key, and each decode step read all of them."""

    def widen(mask: LayerMask) -> torch.Tensor:
        return mask.without_window if mask.is_decode_step else mask.readable

    with compat.sliding_layers_made_for(lambda _window: FILLED_BY_NONE), mask_edited(patient, widen, sliding_layers):
        yield
