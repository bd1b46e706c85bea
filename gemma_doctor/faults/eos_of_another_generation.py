"""The generation settings come from another generation of the family, whose turns end with another token (lighteval
issue 1278).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from gemma_doctor import compat
from gemma_doctor.faults import fault
from gemma_doctor.faults._tokens import no_tokenizer
from gemma_doctor.loading import Patient


def _why_not(patient: Patient) -> str:
    if patient.tokenizer is None:
        return no_tokenizer(patient)
    same = compat.end_tokens(patient.model) == compat.end_tokens_of_another_generation(patient.model)
    return "its settings name one end token or none, as other generations do" if same else ""


@fault("stop-tokens", why_not=_why_not)
def eos_of_another_generation(patient: Patient) -> Iterator[None]:
    """Let a generation end with the tokens that end it in another generation of the family."""
    with ExitStack() as changed:
        for model in patient.models:
            changed.enter_context(compat.end_tokens_set(model, compat.end_tokens_of_another_generation(model)))
        yield
