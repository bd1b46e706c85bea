"""Batches that generate are padded on the right."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient


@fault("padding-side")
def right_padding(patient: Patient) -> Iterator[None]:
    """Set the padding side to right."""
    tokenizer = patient.tokenizer
    before, tokenizer_before = patient.padding_side, getattr(tokenizer, "padding_side", None)
    patient.padding_side = "right"
    if tokenizer is not None:
        tokenizer.padding_side = "right"
    try:
        yield
    finally:
        patient.padding_side = before
        if tokenizer is not None:
            tokenizer.padding_side = tokenizer_before
