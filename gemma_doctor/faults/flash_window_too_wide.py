"""Flash attention is handed W keys on either side of the query, and shows W+1 tokens (transformers issue 39408)."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor import compat
from gemma_doctor.faults import fault, no_window
from gemma_doctor.finding import Severity
from gemma_doctor.loading import Patient


def _why_not(patient: Patient) -> str:
    has_it = compat.has_backend(patient.model, "flash_attention_2")
    return no_window(patient) or ("" if has_it else "the library has no flash attention for this family")


@fault("flash-window", why_not=_why_not, severity=Severity.WARNING)
def flash_window_too_wide(patient: Patient) -> Iterator[None]:
    """Make flash attention's window argument one larger."""
    with compat.flash_window_too_wide():
        yield
