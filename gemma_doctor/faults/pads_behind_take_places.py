"""Experts of a fixed capacity: with pads behind them, the last tokens of a row get no place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.capture.hooks import Fed
from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import mlp_edited, padded_rows
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("right-padded-parity", routes=("right-padded",))
def pads_behind_take_places(patient: Patient) -> Iterator[None]:
    """Drop the MLP of the last real token of each right-padded row."""

    def drop(fed: Fed, output: torch.Tensor) -> torch.Tensor:
        padding = fed.padding
        if fed.start or padding is None or padding[:, -1].all() or output.shape[1] != fed.columns:
            return output
        output = output.clone()
        for row in padded_rows(fed).nonzero()[:, 0].tolist():
            output[row, int(padding[row].sum()) - 1] = 0
        return output

    with mlp_edited(patient, drop):
        yield
