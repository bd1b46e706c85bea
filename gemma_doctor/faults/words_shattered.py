"""The vocabulary has lost what joins its pieces, as Gemma 3 270M has in transformers 5.12, read from its GGUF file."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor import compat
from gemma_doctor.faults import fault
from gemma_doctor.faults._tokens import no_tokenizer, tokenizer_changed
from gemma_doctor.loading import Patient


def _why_not(patient: Patient) -> str:
    if patient.tokenizer is None:
        return no_tokenizer(patient)
    return "" if compat.joins_pieces(patient.tokenizer) else "its tokenizer joins no pieces (it is no BPE)"


@fault("tokenizer-integrity", why_not=_why_not)
def words_shattered(patient: Patient) -> Iterator[None]:
    """Let the tokenizer leave words in letters."""
    with tokenizer_changed(patient, compat.leave_pieces_apart):
        yield
