"""Whoever takes cos and sin takes them in the other order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor.capture.rotation import Rotation
from gemma_doctor.faults import fault
from gemma_doctor.faults._rotation import rotation_edited
from gemma_doctor.loading import Patient


@fault("rope-theta")
def cos_sin_swapped(patient: Patient) -> Iterator[None]:
    """Hand the layers sin in the place of cos, and cos in the place of sin."""

    def swapped(_key: Any, rotation: Rotation, _decoding: bool) -> Rotation:
        cos, sin = rotation
        return sin, cos

    with rotation_edited(patient, swapped):
        yield
