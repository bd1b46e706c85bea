"""Several new tokens on a warm cache: the last of them is left out where work is shared out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.capture.hooks import Fed
from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import mlp_edited, without_last
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("second-turn-parity")
def chunk_without_last_token(patient: Patient) -> Iterator[None]:
    """Drop the last token's MLP where several tokens meet a cache that has seen some."""

    def drop(fed: Fed, output: torch.Tensor) -> torch.Tensor:
        return without_last(output) if fed.start and fed.columns > 1 else output

    with mlp_edited(patient, drop):
        yield
