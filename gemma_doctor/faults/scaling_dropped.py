"""Rope scaling of the configuration is read and not applied (mlx-vlm pull request 1709)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gemma_doctor.evidence import RopeClaim
from gemma_doctor.faults import fault
from gemma_doctor.faults._rotation import ONLY_BEYOND, WITHOUT_TURNING_ALL, built_with, claims, is_scaled
from gemma_doctor.loading import Patient


def _unscaled(model: Any) -> dict[str, RopeClaim]:
    """Kinds of layers whose table differs without its scaling, with the rest of their parameters."""
    return {
        kind: replace(one, rope_type="default", parameters=_rest(one))
        for kind, one in claims(model).items()
        if is_scaled(one) and one.rope_type not in ONLY_BEYOND
    }


def _rest(claim: RopeClaim) -> dict[str, Any]:
    partial = {} if claim.rope_type == WITHOUT_TURNING_ALL else claim.parameters
    return {key: value for key, value in partial.items() if key == "partial_rotary_factor"}


def _why_not(patient: Patient) -> str:
    types = {one.rope_type for one in claims(patient.model).values() if is_scaled(one)}
    if types and types <= set(ONLY_BEYOND):
        return f"{' and '.join(types)} scaling begins beyond the length that the model was trained for"
    return "" if _unscaled(patient.model) else "the model has no rope scaling"


@fault("rope-theta", why_not=_why_not)
def scaling_dropped(patient: Patient) -> Iterator[None]:
    """Build the rotary tables of layers with rope scaling without it, nor its factor on cos and sin."""
    with built_with(patient, _unscaled):
        yield
