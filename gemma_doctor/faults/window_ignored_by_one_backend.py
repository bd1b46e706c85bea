"""The mask that is built for another attention implementation than eager knows no window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import LayerMask, mask_cells_edited, no_sliding_cells
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


def _why_not(patient: Patient) -> str:
    return no_sliding_cells(patient) or (
        "eager attention computes, whose mask is right" if patient.backend == "eager" else ""
    )


@fault("mask-pattern", why_not=_why_not)
def window_ignored_by_one_backend(patient: Patient) -> Iterator[None]:
    """Let every query of one sliding layer read everything before it in prompts, unless eager attention computes."""

    def widen(mask: LayerMask) -> torch.Tensor:
        return mask.readable if mask.backend == "eager" else mask.without_window

    with mask_cells_edited(patient, widen):
        yield
