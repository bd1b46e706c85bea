"""A second turn on a returned cache is numbered from 0, as if it were a new text."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.capture.hooks import Fed
from gemma_doctor.faults import fault
from gemma_doctor.faults._positions import no_decode_step, positions_edited
from gemma_doctor.loading import Patient


@fault("position-ids", why_not=no_decode_step)
def positions_repeated_in_second_turn(patient: Patient) -> Iterator[None]:
    """Number from 0 whatever is fed to a warm cache, more than one token at once."""

    def from_zero(fed: Fed, positions: torch.Tensor) -> torch.Tensor:
        if not fed.start or fed.columns == 1:
            return positions
        return torch.arange(fed.columns, device=positions.device).expand_as(positions)

    with positions_edited(patient, from_zero):
        yield
