"""Verifying a drafter's tokens, the last layer leaves its MLP out."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import Fed, mlp_edited
from gemma_doctor.faults._generation import generate_watched
from gemma_doctor.loading import Patient


@fault("assisted-parity", routes=("assisted",))
def candidates_skip_mlp(patient: Patient) -> Iterator[None]:
    """Drop the last layer's MLP where a drafter's tokens are verified."""

    def drop(fed: Fed, output: torch.Tensor) -> torch.Tensor:
        verifying = fed.start and fed.columns > 1 and running.get("assistant_model") is not None
        return torch.zeros_like(output) if verifying else output

    with generate_watched(patient) as running, mlp_edited(patient, drop):
        yield
