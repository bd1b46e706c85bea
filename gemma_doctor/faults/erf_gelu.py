"""The MLPs compute the exact GELU; the model was trained with the tanh approximation (transformers PR 29402)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gemma_doctor import compat
from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient
from gemma_doctor.undone import attributes_set


def _places(patient: Patient) -> list[tuple[Any, str]]:
    return [place for model in patient.models for place in compat.tanh_gelus(text_decoder(model))]


def _why_not(patient: Patient) -> str:
    return "" if _places(patient) else "its activation is not the tanh approximation of GELU"


@fault("activation", why_not=_why_not)
def erf_gelu(patient: Patient) -> Iterator[None]:
    """Put the exact GELU in place of every tanh approximation of it."""
    with attributes_set([(parent, name, torch.nn.GELU()) for parent, name in _places(patient)]):
        yield
