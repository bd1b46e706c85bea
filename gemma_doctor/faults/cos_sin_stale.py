"""Cos and sin are kept from one decode step to the next and read before they are renewed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor.capture.rotation import Rotation
from gemma_doctor.faults import fault
from gemma_doctor.faults._positions import no_decode_step
from gemma_doctor.faults._rotation import rotation_edited
from gemma_doctor.loading import Patient


@fault("rope-positions", why_not=no_decode_step)
def cos_sin_stale(patient: Patient) -> Iterator[None]:
    """Hand the layers at each decode step the cos and sin of the token before."""
    kept: dict[Any, Rotation] = {}

    def late(key: Any, rotation: Rotation, decoding: bool) -> Rotation:
        cos, sin = rotation
        before, kept[key] = kept.get(key), (cos[:, -1:], sin[:, -1:])
        return before if decoding and before is not None else rotation

    with rotation_edited(patient, late):
        yield
