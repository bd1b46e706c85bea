"""One weight of an output projection is NaN."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.faults import fault, last_attention_of
from gemma_doctor.loading import Patient
from gemma_doctor.undone import tensors_set


@fault("long-generate")
def nan_in_one_weight(patient: Patient) -> Iterator[None]:
    """Put NaN into one weight of the last layer's output projection."""
    weights = [module.o_proj.weight.detach()[0, 0] for module in last_attention_of(patient)]
    with tensors_set([(weight, torch.full_like(weight, float("nan"))) for weight in weights]):
        yield
