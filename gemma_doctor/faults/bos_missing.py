"""Texts reach the model without BOS: encoded without special tokens, or by a tokenizer told to add none."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._tokens import bos_written, no_bos
from gemma_doctor.loading import Patient


@fault("bos-token", why_not=no_bos)
def bos_missing(patient: Patient) -> Iterator[None]:
    """Let the tokenizer put no BOS in front of a text."""
    with bos_written(patient, 0):
        yield
