"""An additive mask comes from numpy, which computes in float64."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.capture.masks import readable
from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import additive, mask_tensors_replaced, no_cells
from gemma_doctor.loading import Patient


def _why_not(patient: Patient) -> str:
    return no_cells(patient) or ("mps knows no float64" if patient.device.startswith("mps") else "")


@fault("mask-dtype", why_not=_why_not)
def mask_in_another_dtype(patient: Patient) -> Iterator[None]:
    """Make every mask that the library hands over an additive one in float64."""
    with mask_tensors_replaced(patient, lambda mask: additive(readable(mask), torch.float64)):
        yield
