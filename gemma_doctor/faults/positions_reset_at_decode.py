"""Each decode step starts again at position 0."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.capture.hooks import Fed
from gemma_doctor.faults import fault
from gemma_doctor.faults._positions import no_decode_step, positions_edited
from gemma_doctor.loading import Patient


@fault("position-ids", why_not=no_decode_step)
def positions_reset_at_decode(patient: Patient) -> Iterator[None]:
    """Hand position 0 to the text decoder at every decode step."""

    def reset(fed: Fed, positions: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(positions) if fed.is_decode_step else positions

    with positions_edited(patient, reset):
        yield
