"""The last layer's MLP puts out at a decode step what it put out at the step before: a buffer that is not refilled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import Fed, mlp_edited
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("cache-parity")
def stale_output_at_decode(patient: Patient) -> Iterator[None]:
    """Let the last layer's MLP be one decode step late."""

    kept: list[torch.Tensor] = []

    def stale(fed: Fed, output: torch.Tensor) -> torch.Tensor:
        before, kept[:] = kept[:], [output[:, -1:]]
        return before[0] if fed.is_decode_step and before else output

    with mlp_edited(patient, stale):
        yield
