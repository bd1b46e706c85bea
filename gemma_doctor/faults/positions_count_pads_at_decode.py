"""Decode steps of a left-padded row are numbered by column, pads included; its prompt was not (unsloth issue 3699)."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.capture.hooks import Fed
from gemma_doctor.faults import fault
from gemma_doctor.faults._positions import no_decode_step, positions_edited
from gemma_doctor.loading import Patient


@fault("position-ids", why_not=no_decode_step)
def positions_count_pads_at_decode(patient: Patient) -> Iterator[None]:
    """Number every decode step by the length of the cache, whatever pads it holds."""

    def by_column(fed: Fed, positions: torch.Tensor) -> torch.Tensor:
        return torch.full_like(positions, fed.start) if fed.is_decode_step else positions

    with positions_edited(patient, by_column):
        yield
