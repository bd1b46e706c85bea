"""Activations that float32 and bfloat16 hold and float16 does not (transformers issue 36822)."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.capture.hooks import Fed
from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import mlp_edited
from gemma_doctor.loading import Patient


@fault("float16-parity", routes=("float16",))
def float16_overflow(patient: Patient) -> Iterator[None]:
    """Let the last layer's MLP pass 65,504 in float16."""

    def overflow(_fed: Fed, output: torch.Tensor) -> torch.Tensor:
        return output * 1e6 if output.dtype is torch.float16 else output

    with mlp_edited(patient, overflow):
        yield
