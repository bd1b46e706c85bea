"""The end token is set as the pad token, as for tokenizers without one, though the model has its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor.faults import fault
from gemma_doctor.faults._tokens import no_tokenizer, tokenizer_changed
from gemma_doctor.finding import Severity
from gemma_doctor.loading import Patient


def _why_not(patient: Patient) -> str:
    if patient.tokenizer is None:
        return no_tokenizer(patient)
    if patient.tokenizer.pad_token_id is None or patient.tokenizer.eos_token_id is None:
        return "its tokenizer has no pad token or no end token"
    same = patient.tokenizer.pad_token_id == patient.tokenizer.eos_token_id
    return "its tokenizer has one token for both" if same else ""


@fault("pad-token", why_not=_why_not, severity=Severity.WARNING)
def pad_id_wrong(patient: Patient) -> Iterator[None]:
    """Let the tokenizer pad with its end token."""

    def change(tokenizer: Any) -> None:
        tokenizer.pad_token = tokenizer.eos_token

    with tokenizer_changed(patient, change):
        yield
