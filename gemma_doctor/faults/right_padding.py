"""Batches that generate are padded on the right."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.finding import Severity
from gemma_doctor.loading import Patient
from gemma_doctor.undone import attributes_set


@fault("padding-side", severity=Severity.WARNING)
def right_padding(patient: Patient) -> Iterator[None]:
    """Set the padding side to right."""
    padding = [patient] if patient.tokenizer is None else [patient, patient.tokenizer]
    with attributes_set([(one, "padding_side", "right") for one in padding]):
        yield
