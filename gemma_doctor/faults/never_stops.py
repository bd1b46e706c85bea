"""The generation settings name no end token: they were written by hand, or lost on the way through a converter."""

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
    return "" if compat.end_tokens(patient.model) else "its settings name no end token as they are"


@fault("stop-tokens", why_not=_why_not)
def never_stops(patient: Patient) -> Iterator[None]:
    """Take all end tokens out of the generation settings."""
    with ExitStack() as changed:
        for model in patient.models:
            changed.enter_context(compat.end_tokens_set(model, None))
        yield
