"""A table of positions that was made for two windows and a bit: all tokens behind it stand at the same place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor import compat
from gemma_doctor.capture.hooks import Fed
from gemma_doctor.faults import fault
from gemma_doctor.faults._long_texts import no_long_text
from gemma_doctor.faults._positions import positions_edited
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch

MORE = 8  # tokens after two windows: no recorded pass is longer


@fault("window-crossing", why_not=no_long_text)
def positions_end_far_out(patient: Patient) -> Iterator[None]:
    """Clamp position ids to two windows and eight tokens, with the cache and without."""

    def clamped(fed: Fed, positions: torch.Tensor) -> torch.Tensor:
        window = compat.window(compat.text_config(fed.decoder)) or 0
        return positions.clamp(max=2 * window + MORE)

    with positions_edited(patient, clamped):
        yield
