"""Scores are scaled by 1 / sqrt(head_dim), as everywhere else; the configuration says otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from gemma_doctor import compat
from gemma_doctor.faults import attention_of, fault
from gemma_doctor.loading import Patient


def _usual(module: Any) -> float:
    return float(module.head_dim**-0.5)


def _others(patient: Patient) -> list[Any]:
    # latent attention has heads of two sizes, and no attribute for one
    sized = (module for module in attention_of(patient) if hasattr(module, "head_dim"))
    scales = ((module, compat.score_scale(module)) for module in sized)
    return [module for module, scale in scales if scale is not None and not math.isclose(scale, _usual(module))]


def _why_not(patient: Patient) -> str:
    if all(compat.score_scale(module) is None for module in attention_of(patient)):
        return "this release keeps the family's scale in no attribute"
    return "" if _others(patient) else "its configuration has the same scale"


@fault("reference-parity", why_not=_why_not)
def query_scale_from_head_dim(patient: Patient) -> Iterator[None]:
    """Multiply attention scores by head_dim**-0.5 in all layers."""
    with ExitStack() as changed:
        for module in _others(patient):
            changed.enter_context(compat.score_scale_set(module, _usual(module)))
        yield
