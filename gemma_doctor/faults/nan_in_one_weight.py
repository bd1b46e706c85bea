"""One weight of an output projection is NaN."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.faults import fault, last_attention_of
from gemma_doctor.loading import Patient


@fault("long-generate")
def nan_in_one_weight(patient: Patient) -> Iterator[None]:
    """Put NaN into one weight of the last layer's output projection."""
    weights = [module.o_proj.weight for module in last_attention_of(patient)]
    before = [weight[0, 0].clone() for weight in weights]
    with torch.no_grad():
        for weight in weights:
            weight[0, 0] = float("nan")
    try:
        yield
    finally:
        with torch.no_grad():
            for weight, value in zip(weights, before, strict=True):
                weight[0, 0] = value
