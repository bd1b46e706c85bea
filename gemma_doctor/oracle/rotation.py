"""Rotary frequencies in float64, from the papers.

References: RoPE arXiv:2104.09864; position interpolation arXiv:2306.15595; YaRN arXiv:2309.00071; LongRoPE
arXiv:2402.13753; Llama 3.1 arXiv:2407.21783.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from gemma_doctor.evidence import Floats, RopeClaim


def inverse_frequencies(
    rope: RopeClaim, head_dim: int, max_positions: int | None = None, length: int | None = None
) -> tuple[Floats, float]:
    """Angle per position of every rotated pair, and the factor on cos and sin.

    Args:
        rope: parameters; theta must be known.
        head_dim: size of one head.
        max_positions: of the model; needed by dynamic scaling and where a factor is left to be derived.
        length: tokens fed so far; decides for dynamic and longrope only. None = within the original length.

    Returns:
        Inverse frequencies in radians, shape (rotary_dim / 2,), and the factor (1.0 except yarn and longrope).

    Raises:
        ValueError: theta or a parameter that the type needs is missing, or the type is unknown.
    """
    if rope.theta is None:
        raise ValueError("no theta")
    if rope.rope_type not in _SCALINGS:
        raise ValueError(f"unknown rope type {rope.rope_type!r}")
    terms = dict(rope.parameters)
    terms.setdefault("partial_rotary_factor", 1.0)
    terms["max_positions"], terms["length"] = max_positions, length
    try:
        with np.errstate(divide="raise", invalid="raise", over="raise"):
            frequencies, factor = _SCALINGS[rope.rope_type](float(rope.theta), head_dim, terms)
    except KeyError as missing:
        raise ValueError(f"{rope.rope_type} scaling without {missing.args[0]}") from missing
    except (TypeError, ValueError, ArithmeticError) as problem:
        raise ValueError(f"{rope.rope_type} scaling cannot be computed: {problem}") from problem
    if np.iscomplexobj(frequencies) or not np.isfinite(frequencies).all() or not math.isfinite(factor):
        raise ValueError(f"{rope.rope_type} scaling gives no finite frequencies")
    return frequencies, factor


def _rotary_dim(head_dim: int, terms: dict[str, Any]) -> int:
    return int(head_dim * terms["partial_rotary_factor"])


def _plain(theta: float, dim: int) -> Floats:
    """theta^(-2i / d), section 3.2.2 of the RoPE paper."""
    return theta ** -(np.arange(0, dim, 2, dtype=np.float64) / dim)


def _default(theta: float, head_dim: int, terms: dict[str, Any]) -> tuple[Floats, float]:
    return _plain(theta, _rotary_dim(head_dim, terms)), 1.0


def _linear(theta: float, head_dim: int, terms: dict[str, Any]) -> tuple[Floats, float]:
    """Position interpolation: all positions divided by one factor."""
    return _plain(theta, _rotary_dim(head_dim, terms)) / terms["factor"], 1.0


def _proportional(theta: float, head_dim: int, terms: dict[str, Any]) -> tuple[Floats, float]:
    """Gemma 4: the exponents of a whole head, of which only the first pairs turn; the others stand still."""
    frequencies = _plain(theta, head_dim) / terms.get("factor", 1.0)
    turning = int(terms["partial_rotary_factor"] * head_dim // 2)
    return np.where(np.arange(frequencies.size) < turning, frequencies, 0.0), 1.0


def _dynamic(theta: float, head_dim: int, terms: dict[str, Any]) -> tuple[Floats, float]:
    """NTK-aware base change with the length so far (YaRN paper, section 3.1 and appendix B.1)."""
    dim, factor, limit = _rotary_dim(head_dim, terms), terms["factor"], terms["max_positions"]
    length = max(terms["length"] or limit, limit)
    stretch = factor * length / limit - (factor - 1)
    return _plain(theta * stretch ** (dim / (dim - 2)), dim), 1.0


def _llama3(theta: float, head_dim: int, terms: dict[str, Any]) -> tuple[Floats, float]:
    """Llama 3.1: long waves divided by the factor, short ones kept, a linear blend (in turns) between."""
    frequencies = _plain(theta, _rotary_dim(head_dim, terms))
    low, high = terms["low_freq_factor"], terms["high_freq_factor"]
    turns = terms["original_max_position_embeddings"] * frequencies / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return frequencies * (kept + (1 - kept) / terms["factor"]), 1.0


def _yarn(theta: float, head_dim: int, terms: dict[str, Any]) -> tuple[Floats, float]:
    """YaRN, sections 3.2-3.4: blend by pair index between interpolated and kept, and a temperature."""
    dim, original = _rotary_dim(head_dim, terms), terms["original_max_position_embeddings"]
    factor = terms.get("factor") or terms["max_positions"] / original
    pairs = [
        dim * math.log(original / (2 * math.pi * turns)) / (2 * math.log(theta))
        for turns in (terms.get("beta_fast") or 32, terms.get("beta_slow") or 1)
    ]
    if terms.get("truncate", True):
        pairs = [math.floor(pairs[0]), math.ceil(pairs[1])]
    first, last = max(pairs[0], 0), min(pairs[1], dim - 1)
    last = last if last != first else first + 0.001
    kept = 1 - np.clip((np.arange(dim // 2) - first) / (last - first), 0.0, 1.0)
    return _plain(theta, dim) * (kept + (1 - kept) / factor), _yarn_temperature(factor, terms)


def _yarn_temperature(factor: float, terms: dict[str, Any]) -> float:
    """0.1 ln(s) + 1 on cos and sin (YaRN, equation 22), or what the file says instead (DeepSeek's mscale pair)."""
    if terms.get("attention_factor") is not None:
        return float(terms["attention_factor"])

    def mscale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    if terms.get("mscale") and terms.get("mscale_all_dim"):
        return mscale(terms["mscale"]) / mscale(terms["mscale_all_dim"])
    return mscale(1.0)


def _longrope(theta: float, head_dim: int, terms: dict[str, Any]) -> tuple[Floats, float]:
    """LongRoPE: one searched factor per pair, another set beyond the original length."""
    original = terms["original_max_position_embeddings"]
    long = terms["length"] is not None and terms["length"] > original
    per_pair = np.asarray(terms["long_factor" if long else "short_factor"], dtype=np.float64)
    frequencies = _plain(theta, _rotary_dim(head_dim, terms)) / per_pair
    if terms.get("attention_factor") is not None:
        return frequencies, float(terms["attention_factor"])
    factor = terms.get("factor") or terms["max_positions"] / original
    return frequencies, math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0


_SCALINGS: dict[str, Callable[[float, int, dict[str, Any]], tuple[Floats, float]]] = {
    "default": _default,
    "linear": _linear,
    "proportional": _proportional,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
