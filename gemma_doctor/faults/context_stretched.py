"""The file names four times as many positions as the weights were trained for, and nothing scales the rotation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from gemma_doctor import compat
from gemma_doctor.capture.model_facts import loaded_config
from gemma_doctor.faults import fault
from gemma_doctor.faults._published import loaded_as, published_as, written
from gemma_doctor.finding import Severity
from gemma_doctor.loading import Patient
from gemma_doctor.oracle import far_claim, is_scaled

STRETCH = 4
KEY = "max_position_embeddings"


def _why_not(patient: Patient) -> str:
    if not patient.subject.config.published.max_positions:
        return "its file names no number of positions"
    claim = far_claim(loaded_config(patient.model))
    return "its rotation is scaled" if claim is not None and is_scaled([claim]) else ""


@fault("rope-coverage", why_not=_why_not, severity=Severity.WARNING)
def context_stretched(patient: Patient) -> Iterator[None]:
    """Multiply max_position_embeddings by 4, in the published file and as loaded; theta stays."""
    positions = STRETCH * compat.text_config(patient.model).max_position_embeddings
    with ExitStack() as stack:
        stack.enter_context(published_as(patient, {**written(patient), KEY: positions}))
        stack.enter_context(loaded_as(patient, {KEY: positions}))
        yield
