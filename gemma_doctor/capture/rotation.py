"""The rotation that a layer's queries and keys receive, from the cos and sin that it is handed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gemma_doctor.capture.masks import dtype_name
from gemma_doctor.evidence import Floats, LayerRotation, frozen


def is_rotation(value: Any) -> bool:
    """It looks like the (cos, sin) that attention modules are handed."""
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and all(isinstance(part, torch.Tensor) and part.is_floating_point() and part.dim() == 3 for part in value)
    )


def layer_rotation(layer: int, cos: torch.Tensor, sin: torch.Tensor) -> LayerRotation:
    """Undo the layout in which a family lays out cos and sin, each of shape (rotary_dim,) or (rotary_dim / 2,)."""
    dtype = dtype_name(cos.dtype)
    c, s = (part.float().cpu().numpy().astype(np.float64) for part in (cos, sin))
    half = len(c) // 2
    if np.array_equal(c[:half], c[half:]) and np.array_equal(s[:half], s[half:]):
        c, s = c[:half], s[:half]
    elif np.array_equal(c[0::2], c[1::2]) and np.array_equal(s[0::2], s[1::2]):
        c, s = c[0::2], s[0::2]
    frequencies: Floats = np.arctan2(s, c)
    return LayerRotation(layer, frozen(frequencies), float(np.hypot(c, s).mean()), dtype)
