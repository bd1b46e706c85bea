"""A chunk as long as the one before it is computed from a buffer that still holds that one's states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.capture.hooks import Fed
from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import mlp_edited
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("chunked-prefill-parity", routes=("chunked-prefill",))
def equal_chunk_not_refilled(patient: Patient) -> Iterator[None]:
    """Put out the MLP of the first chunk for all that are as long and follow it."""

    kept: list[tuple[int, torch.Tensor]] = []

    def stale(fed: Fed, output: torch.Tensor) -> torch.Tensor:
        for columns, before in kept:
            if fed.start and fed.columns == columns > 1 and before.shape == output.shape:
                return before
        kept[:] = [(fed.columns, output)]
        return output

    with mlp_edited(patient, stale):
        yield
