"""Rope scaling of the configuration is read and not applied (mlx-vlm pull request 1709)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gemma_doctor.evidence import RopeClaim
from gemma_doctor.faults import fault
from gemma_doctor.faults._rotation import built_with, claims, is_scaled
from gemma_doctor.loading import Patient

# Scaling that is partial rotation, without a factor of its own; engines leave it out like any scaling.
PARTIAL_ROTATION = "proportional"
# Scaling that changes nothing within the length that the model was trained for.
BEYOND_TRAINED_LENGTH = "dynamic"


def _unscaled(model: Any) -> dict[str, RopeClaim]:
    """Kinds of layers whose table differs without its scaling, with the rest of their parameters."""
    return {
        kind: replace(one, rope_type="default", parameters=_rest(one))
        for kind, one in claims(model).items()
        if is_scaled(one) and one.rope_type != BEYOND_TRAINED_LENGTH
    }


def _rest(claim: RopeClaim) -> dict[str, Any]:
    kept = {} if claim.rope_type == PARTIAL_ROTATION else claim.parameters
    return {key: value for key, value in kept.items() if key == "partial_rotary_factor"}


def _why_not(patient: Patient) -> str:
    types = {one.rope_type for one in claims(patient.model).values() if is_scaled(one)}
    if types == {BEYOND_TRAINED_LENGTH}:
        return f"{BEYOND_TRAINED_LENGTH} scaling begins beyond the length that the model was trained for"
    return "" if _unscaled(patient.model) else "the model has no rope scaling"


@fault("rope-theta", why_not=_why_not)
def scaling_dropped(patient: Patient) -> Iterator[None]:
    """Build the rotary tables of layers with rope scaling without it, nor its factor on cos and sin."""
    with built_with(patient, _unscaled):
        yield
