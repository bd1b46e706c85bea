"""Rope scaling that one kind of layers has is applied to the other's frequencies as well (ferrox issue 39)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gemma_doctor.evidence import RopeClaim
from gemma_doctor.faults import fault
from gemma_doctor.faults._rotation import built_with, claims, is_scaled
from gemma_doctor.loading import Patient


def _wrong(model: Any) -> dict[str, RopeClaim]:
    """Kinds of layers without scaling, with that of another kind and the theta of their own."""
    own = claims(model)
    scaled = next((one for one in own.values() if is_scaled(one)), None)
    if scaled is None:
        return {}
    return {kind: replace(scaled, theta=one.theta) for kind, one in own.items() if not is_scaled(one)}


def _why_not(patient: Patient) -> str:
    if len(claims(patient.model)) < 2:
        return "one rotary table serves all layers"
    return "" if _wrong(patient.model) else "no kind of layers has a scaling that another lacks"


@fault("rope-theta", why_not=_why_not)
def scaling_on_the_wrong_kind(patient: Patient) -> Iterator[None]:
    """Build the rotary tables of layers without rope scaling with the scaling of the others."""
    with built_with(patient, _wrong):
        yield
