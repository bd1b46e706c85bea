"""Batches without pads: the last row is left out where work is shared out."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.capture.hooks import Fed
from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import mlp_edited, padded_rows, without_last
from gemma_doctor.loading import Patient


@fault("equal-rows-parity", routes=("equal-rows",))
def batch_without_tail(patient: Patient) -> Iterator[None]:
    """Drop the MLP of the last token in the last row of a batch without pads."""

    def drop(fed: Fed, output: torch.Tensor) -> torch.Tensor:
        if fed.start or len(output) == 1 or padded_rows(fed).any():
            return output
        return without_last(output, torch.arange(len(output)) == len(output) - 1)

    with mlp_edited(patient, drop):
        yield
