"""The subject's generation settings divide where they should multiply: what was said before becomes likelier."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._positions import no_decode_step
from gemma_doctor.loading import Patient
from gemma_doctor.undone import attributes_set

PENALTY = 0.5  # 2 was meant


@fault("degeneration", why_not=no_decode_step)
def repetition_rewarded(patient: Patient) -> Iterator[None]:
    """Set repetition_penalty to 0.5 in the subject's own generation settings."""
    with attributes_set([(model.generation_config, "repetition_penalty", PENALTY) for model in patient.models]):
        yield
