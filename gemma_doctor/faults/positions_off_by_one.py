"""The length of the cache is counted with the new token: each decode step stands one position too high."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.capture.hooks import Fed
from gemma_doctor.faults import fault
from gemma_doctor.faults._positions import no_decode_step, positions_edited
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("position-ids", why_not=no_decode_step)
def positions_off_by_one(patient: Patient) -> Iterator[None]:
    """Add 1 to the position of every decode step."""

    def next_one(fed: Fed, positions: torch.Tensor) -> torch.Tensor:
        return positions + 1 if fed.is_decode_step else positions

    with positions_edited(patient, next_one):
        yield
