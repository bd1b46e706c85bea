"""The rotation that a layer's queries and keys receive, from the cos and sin that it is handed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from gemma_doctor import compat
from gemma_doctor.capture.masks import dtype_name
from gemma_doctor.evidence import Floats, LayerRotation, Turn, frozen

# cos and sin, shape (b, tokens, rotary_dim) or, where each pair stands once, (b, tokens, rotary_dim / 2)
Rotation: TypeAlias = tuple[torch.Tensor, torch.Tensor]

# Unit vectors by which a layer's way to apply cos and sin is tried out.
PROBES = 8


def is_rotation(value: Any) -> bool:
    """It looks like the (cos, sin) that attention modules are handed."""
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and all(isinstance(part, torch.Tensor) and part.is_floating_point() and part.dim() == 3 for part in value)
    )


def rotary_modules(decoder: Any) -> list[Any]:
    """The modules of a text decoder that make cos and sin."""
    return [module for module in decoder.modules() if "Rotary" in type(module).__name__]


def layer_rotation(module: Any, cos: torch.Tensor, sin: torch.Tensor) -> LayerRotation:
    """What an attention module does with the cos and sin of position 1, each of shape (rotary_dim,) or half of that."""
    c, s = pairs_once(cos, sin)
    frequencies, scaling = np.arctan2(s, c), float(np.hypot(c, s).mean())
    distortion = _distortion(module, cos, sin, 2 * len(c), scaling)
    return LayerRotation(int(module.layer_idx), frozen(frequencies), scaling, dtype_name(cos.dtype), distortion)


def turn(rotation: Rotation, layers: Sequence[int], position: int) -> Turn:
    """The angles of the last token of the first row, as `layers` were handed them."""
    cos, sin = (part[0, -1].detach() for part in rotation)
    c, s = pairs_once(cos, sin)
    return Turn(tuple(layers), position, frozen(np.arctan2(s, c)), dtype_name(cos.dtype))


def pairs_once(cos: torch.Tensor, sin: torch.Tensor) -> tuple[Floats, Floats]:
    """Each pair once, whatever the layout of the last axis: (f0, f1 .. f0, f1 ..), (f0, f0, f1, f1 ..) or (f0, f1 ..).

    Args:
        cos, sin: of one position or more, other than position 0 alone, which shows no layout.
    """
    c, s = (part.float().cpu().numpy().astype(np.float64) for part in (cos, sin))
    half = c.shape[-1] // 2
    if np.array_equal(c[..., :half], c[..., half:]) and np.array_equal(s[..., :half], s[..., half:]):
        return c[..., :half], s[..., :half]
    if np.array_equal(c[..., 0::2], c[..., 1::2]) and np.array_equal(s[..., 0::2], s[..., 1::2]):
        return c[..., 0::2], s[..., 0::2]
    return c, s


def _distortion(module: Any, cos: torch.Tensor, sin: torch.Tensor, size: int, scaling: float) -> float | None:
    """Of some unit vectors of those that rotary embedding turns.

    Cos and sin in the layout of another family pair entries that do not belong together. That turns nothing: it
    shortens some vectors and lengthens others.
    """
    vectors = torch.eye(size, dtype=cos.dtype, device=cos.device)[:: max(size // PROBES, 1)]
    turned = compat.rotated(module, vectors, cos, sin)
    if turned is None or not scaling:
        return None
    lengths = np.linalg.norm(turned.float().cpu().numpy().astype(np.float64), axis=1)
    return float(np.abs(lengths / scaling - 1).max())
