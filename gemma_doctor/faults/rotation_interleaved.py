"""Cos and sin are laid out for the other way to pair entries: neighbours where the layers pair halves, or halves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gemma_doctor.capture.rotation import Rotation
from gemma_doctor.faults import fault
from gemma_doctor.faults._rotation import handed_rotation, rotation_edited
from gemma_doctor.loading import Patient


def _why_not(patient: Patient) -> str:
    rotation = handed_rotation(patient)
    laid_out = rotation is not None and not torch.equal(_other(rotation[0]), rotation[0])
    return "" if laid_out else "cos and sin hold each pair once, in no layout that could be mistaken"


@fault("rope-theta", why_not=_why_not)
def rotation_interleaved(patient: Patient) -> Iterator[None]:
    """Lay out cos and sin as f0, f0, f1, f1 .. for layers that turn f0, f1 .. f0, f1 .., or the other way round."""

    def other(_key: Any, rotation: Rotation, _decoding: bool) -> Rotation:
        cos, sin = rotation
        return _other(cos), _other(sin)

    with rotation_edited(patient, other):
        yield


def _other(part: torch.Tensor) -> torch.Tensor:
    """Cos or sin in the other layout; as it is where each pair stands once."""
    half = part.shape[-1] // 2
    if torch.equal(part[..., :half], part[..., half:]):
        return part[..., :half].repeat_interleave(2, dim=-1)
    if torch.equal(part[..., 0::2], part[..., 1::2]):
        return part[..., 0::2].repeat(1, 1, 2)
    return part
