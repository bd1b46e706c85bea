"""The loaded configuration has fewer positions than the published one: texts are cut or refused long before the end."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor import compat
from gemma_doctor.faults import fault
from gemma_doctor.faults._published import loaded_as
from gemma_doctor.loading import Patient


def _why_not(patient: Patient) -> str:
    return "" if patient.subject.config.published.max_positions else "its file names no number of positions"


@fault("context-length", why_not=_why_not)
def positions_cut_at_load(patient: Patient) -> Iterator[None]:
    """Halve max_position_embeddings of the loaded configuration."""
    positions = compat.text_config(patient.model).max_position_embeddings
    with loaded_as(patient, {"max_position_embeddings": positions // 2}):
        yield
