"""Sliding cache layers drop nothing, and at decode steps, where a single query reads, the masks know no window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import no_keys_dropped, no_layers_that_drop_keys
from gemma_doctor.faults._masks import LayerMask, mask_cells_edited, no_sliding_cells, sliding_layers
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


def _why_not(patient: Patient) -> str:
    return no_sliding_cells(patient) or no_layers_that_drop_keys(patient)


@fault("mask-pattern", why_not=_why_not)
def window_ignored_at_decode(patient: Patient) -> Iterator[None]:
    """Let sliding layers keep every key, and each decode step read all of them."""

    def widen(mask: LayerMask) -> torch.Tensor:
        return mask.without_window if mask.is_decode_step else mask.readable

    with no_keys_dropped(), mask_cells_edited(patient, widen, sliding_layers):
        yield
