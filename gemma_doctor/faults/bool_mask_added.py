"""A bool mask reaches a kernel that adds its mask to the scores."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.capture.masks import readable
from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import mask_tensors_replaced
from gemma_doctor.loading import Patient


def _why_not(patient: Patient) -> str:
    return "" if patient.backend == "eager" else f"{patient.backend} reads a bool mask as meant"


@fault("mask-dtype", why_not=_why_not)
def bool_mask_added(patient: Patient) -> Iterator[None]:
    """Turn the additive masks of all layers into bool masks."""
    with mask_tensors_replaced(patient, readable):
        yield
