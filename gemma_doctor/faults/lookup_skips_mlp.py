"""Verifying tokens that were looked up in the prompt, the last layer leaves its MLP out."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import Fed, mlp_edited
from gemma_doctor.faults._generation import asked_for, generate_watched
from gemma_doctor.loading import Patient


@fault("prompt-lookup-parity", routes=("prompt-lookup",))
def lookup_skips_mlp(patient: Patient) -> Iterator[None]:
    """Drop the last layer's MLP where looked-up tokens are verified."""

    def drop(fed: Fed, output: torch.Tensor) -> torch.Tensor:
        verifying = fed.start and fed.columns > 1 and asked_for(running, "prompt_lookup_num_tokens")
        return torch.zeros_like(output) if verifying else output

    with generate_watched(patient) as running, mlp_edited(patient, drop):
        yield
