"""The model was moved to bfloat16 and back: .to() rounds the inverse frequencies (transformers issue 25681)."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.capture.model_facts import rotary_tensors
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient
from gemma_doctor.undone import tensors_set


@fault("rope-theta")
def frequencies_in_half(patient: Patient) -> Iterator[None]:
    """Round the inverse frequencies to bfloat16."""
    tensors = [tensor for model in patient.models for _, _, tensor in rotary_tensors(model)]
    with tensors_set([(tensor, tensor.to(torch.bfloat16)) for tensor in tensors]):
        yield
