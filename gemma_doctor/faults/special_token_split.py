"""A special token is one no more: its text is read as any other, as in vocabularies without their added tokens."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor import compat
from gemma_doctor.faults import fault
from gemma_doctor.faults._tokens import no_tokenizer, tokenizer_changed
from gemma_doctor.loading import Patient

START_OF_TURN = "<start_of_turn>"


def _why_not(patient: Patient) -> str:
    if patient.tokenizer is None:
        return no_tokenizer(patient)
    known = compat.takes_special_tokens(patient.tokenizer) and START_OF_TURN in patient.tokenizer.get_added_vocab()
    return "" if known else f"its tokenizer has no added token {START_OF_TURN}"


@fault("tokenizer-integrity", why_not=_why_not)
def special_token_split(patient: Patient) -> Iterator[None]:
    """Let the marker that starts a turn be read as text."""
    with tokenizer_changed(patient, lambda tokenizer: compat.split_special_token(tokenizer, START_OF_TURN)):
        yield
