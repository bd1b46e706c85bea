"""Experts of a fixed capacity: the pads of a batch take places, and the last tokens of padded rows get none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.capture.hooks import Fed
from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import mlp_edited, padded_rows, without_last
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("left-padded-parity")
def pads_take_places(patient: Patient) -> Iterator[None]:
    """Drop the MLP of the last token of each left-padded row in a prompt."""

    def drop(fed: Fed, output: torch.Tensor) -> torch.Tensor:
        padding = fed.padding
        if fed.start or padding is None or not padding[:, -1].all():
            return output
        return without_last(output, padded_rows(fed))

    with mlp_edited(patient, drop):
        yield
