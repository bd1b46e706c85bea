"""Where a fault shows in long texts alone: so far out that no other pass gets there."""

from __future__ import annotations

from gemma_doctor.faults import no_window
from gemma_doctor.loading import Patient

# The longest recorded pass ends a few tokens after two windows.
LENGTHS = 2.25


def far_out(window: int) -> int:
    """Total length that only long texts pass."""
    return int(LENGTHS * window)


def no_long_text(patient: Patient) -> str:
    """Reason why a patient cannot have a fault of long texts."""
    if not patient.encodes:
        return "needs trained weights and a tokenizer"
    return no_window(patient)
