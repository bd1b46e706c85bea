"""A model_max_length left over from training is shorter than the window: texts truncated to it never fill one."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._tokens import no_tokenizer, tokenizer_changed
from gemma_doctor.finding import Severity
from gemma_doctor.loading import Patient


def _why_not(patient: Patient) -> str:
    if patient.tokenizer is None:
        return no_tokenizer(patient)
    return "" if patient.window and patient.window > 1 else "the model has no window that a text could not fill"


@fault("truncation", why_not=_why_not, severity=Severity.WARNING)
def texts_cut_short(patient: Patient) -> Iterator[None]:
    """Let truncation=True cut texts at half the window."""
    assert patient.window is not None
    half = patient.window // 2
    with tokenizer_changed(patient, lambda tokenizer: setattr(tokenizer, "model_max_length", half)):
        yield
