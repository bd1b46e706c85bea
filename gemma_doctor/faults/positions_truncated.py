"""Positions are clamped to the size of a table: all tokens behind it stand at the same place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor import compat
from gemma_doctor.capture.hooks import Fed
from gemma_doctor.capture.passes import BRIEF_EDGE
from gemma_doctor.faults import fault
from gemma_doctor.faults._positions import positions_edited
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("position-ids")
def positions_truncated(patient: Patient) -> Iterator[None]:
    """Clamp position ids to the last one within the window (24 positions without one)."""

    def clamped(fed: Fed, positions: torch.Tensor) -> torch.Tensor:
        limit = compat.window(compat.text_config(fed.decoder)) or BRIEF_EDGE
        return positions.clamp(max=limit - 1)

    with positions_edited(patient, clamped):
        yield
