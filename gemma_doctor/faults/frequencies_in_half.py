"""The model was moved to bfloat16 and back: .to() rounds the inverse frequencies (transformers issue 25681)."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.capture.model_facts import rotary_tensors
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient


@fault("rope-theta")
def frequencies_in_half(patient: Patient) -> Iterator[None]:
    """Round the inverse frequencies to bfloat16."""
    tensors = [tensor for model in patient.models for _, _, tensor in rotary_tensors(model)]
    before = [tensor.clone() for tensor in tensors]
    for tensor in tensors:
        tensor.copy_(tensor.to(torch.bfloat16))
    try:
        yield
    finally:
        for tensor, exact in zip(tensors, before, strict=True):
            tensor.copy_(exact)
