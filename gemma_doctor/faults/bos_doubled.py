"""BOS comes twice: from the chat template, and again when its text is encoded (transformers issue 37686)."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._tokens import bos_written, no_bos
from gemma_doctor.loading import Patient


@fault("bos-token", why_not=no_bos)
def bos_doubled(patient: Patient) -> Iterator[None]:
    """Let the tokenizer put two BOS in front of a text."""
    with bos_written(patient, 2):
        yield
