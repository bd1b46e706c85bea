"""A compiled graph keeps an index that was right when it was made."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import mlp_output_changed
from gemma_doctor.loading import Patient


@fault("compiled-parity", routes=("compiled",))
def stale_constant_when_compiled(patient: Patient) -> Iterator[None]:
    """Turn the last layer's MLP by one channel in compiled code."""

    def turn(output: torch.Tensor) -> torch.Tensor:
        return output.roll(1, dims=-1) if torch.compiler.is_compiling() else output

    with mlp_output_changed(patient, turn):
        yield
