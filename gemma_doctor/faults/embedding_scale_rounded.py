"""The model was moved to bfloat16 and back: .to() rounds the scale of the embeddings."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor import compat
from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient
from gemma_doctor.undone import tensors_set


def _scales(patient: Patient) -> list[torch.Tensor]:
    return [scale for model in patient.models for scale in compat.scale_buffers(text_decoder(model))]


def _why_not(patient: Patient) -> str:
    scales = _scales(patient)
    if not scales:
        return "no scale of its embeddings is kept in a buffer"
    if patient.dtype != "float32":
        return f"in {patient.dtype} the family rounds the scale itself"
    if all(torch.equal(_rounded(one), one) for one in scales):
        return f"its scale, {', '.join(sorted({f'{float(one):g}' for one in scales}))}, is the same in bfloat16"
    return ""


@fault("embedding-scale", why_not=_why_not)
def embedding_scale_rounded(patient: Patient) -> Iterator[None]:
    """Round the scale of the embeddings to bfloat16."""
    with tensors_set([(scale, _rounded(scale)) for scale in _scales(patient)]):
        yield


def _rounded(scale: torch.Tensor) -> torch.Tensor:
    return scale.to(torch.bfloat16).to(scale.dtype)
