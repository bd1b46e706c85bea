"""Reads a loaded model: its configuration, attention and norm modules, rotary buffers. Runs no forward of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gemma_doctor import compat, published
from gemma_doctor.capture.masks import dtype_name
from gemma_doctor.evidence import LayerFacts, ModelFacts, NormFacts, RotaryBuffer, frozen
from gemma_doctor.oracle import EPSILON, usable_epsilon

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gemma_doctor.evidence import ConfigFacts, Floats
    from gemma_doctor.loading import Patient

WINDOW_ATTRIBUTES = ("sliding_window", "attention_window_size", "window_size")
EPS_ATTRIBUTES = ("eps", "variance_epsilon", "epsilon")
# Its square fits float16. Where epsilon is so large that the small input is, the large one is so many times larger.
LARGE_INPUT, LARGER = 64.0, 16.0
USUAL_EPS = 1e-6


def model_facts(patient: Patient) -> ModelFacts:
    """The configuration and the modules of the patient's model at the true window."""
    model = patient.model
    modules = attention_modules(model)
    return ModelFacts(
        loaded=loaded_config(model),
        layers=layer_facts(model),
        norms=tuple(norms(model)),
        rotary=tuple(rotary_buffers(model)),
        # the attention modules say whether they read in both directions
        causal=not modules or any(getattr(module, "is_causal", True) for module in modules.values()),
    )


def loaded_config(model: Any) -> ConfigFacts:
    """The configuration that the running model carries.

    The window is read off the object: bidirectional Gemma 3 loads half of it and writes the whole one back.
    """
    config = compat.text_config(model)
    mapping = config.to_dict()
    mapping |= {key: getattr(config, key) for key in published.WINDOW_KEYS if key in mapping}
    return published.read(mapping, "loaded config")


def text_decoder(model: Any) -> Any:
    """The inner module that owns the decoder layers; in image-text models not the vision tower's.

    Raises:
        LookupError: there is none.
    """
    family = compat.text_config(model).model_type
    for module in model.modules():
        if isinstance(getattr(module, "layers", None), torch.nn.ModuleList) and module.config.model_type == family:
            return module
    raise LookupError(f"{type(model).__name__} has no module with decoder layers")


def attention_modules(model: Any) -> dict[int, Any]:
    """The attention module of every decoder layer, by layer index, ascending."""
    found = {
        int(module.layer_idx): module
        for module in text_decoder(model).layers.modules()
        if "Attention" in type(module).__name__ and getattr(module, "layer_idx", None) is not None
    }
    return dict(sorted(found.items()))


def layer_facts(model: Any) -> tuple[LayerFacts, ...]:
    """Every decoder layer, as its attention module is built. Weights are not looked at: there may be none."""
    config, modules = compat.text_config(model), attention_modules(model)
    kinds = compat.layer_kinds(config)
    shared = _shared_kv(kinds, modules)
    return tuple(_layer(config, index, module, kinds[index], shared.get(index)) for index, module in modules.items())


def kv_sources(model: Any) -> dict[int, int]:
    """For layers that reuse another layer's keys and values: that layer (the last own one of the same kind)."""
    return _shared_kv(compat.layer_kinds(compat.text_config(model)), attention_modules(model))


def _shared_kv(kinds: Sequence[str], modules: dict[int, Any]) -> dict[int, int]:
    reusing = [index for index, module in modules.items() if not compat.has_own_keys(module)]
    own = [index for index in modules if index not in reusing]
    return {index: max(other for other in own if kinds[other] == kinds[index]) for index in reusing}


def _layer(config: Any, index: int, module: Any, kind: str, shares_kv_with: int | None) -> LayerFacts:
    head_dim = int(getattr(module, "head_dim", None) or compat.head_dim(config))
    heads, kv_heads = _heads(module, config, head_dim)
    return LayerFacts(
        index=index,
        kind=kind,
        window_attributes={name: getattr(module, name) for name in WINDOW_ATTRIBUTES if hasattr(module, name)},
        head_dim=head_dim,
        query_heads=heads,
        kv_heads=kv_heads,
        shares_kv_with=shares_kv_with,
    )


def _heads(module: Any, config: Any, head_dim: int) -> tuple[int, int]:
    """From the projections, since kinds of layers may differ; families that fuse or share them: from the config."""
    query, key = (getattr(getattr(module, name, None), "out_features", None) for name in ("q_proj", "k_proj"))
    heads = int(config.num_attention_heads) if query is None else query // head_dim
    if key is not None:
        return heads, key // head_dim
    groups = getattr(module, "num_key_value_groups", None)
    return heads, heads // int(groups) if groups else int(compat.base_value(config, "num_key_value_heads") or heads)


# --- rotary buffers --------------------------------------------------------------------------------------------------


def rotary_buffers(model: Any) -> Iterator[RotaryBuffer]:
    """Live inverse frequencies, as evidence."""
    for name, kind, tensor in rotary_tensors(model):
        values = frozen(tensor.detach().double().cpu().numpy())
        yield RotaryBuffer(name, kind, values, dtype_name(tensor.dtype))


def rotary_tensors(model: Any) -> list[tuple[str, str, torch.Tensor]]:
    """(name, layer kind, live inverse frequencies). Copies that are kept for a later reset are left out."""
    decoder = text_decoder(model)
    return [
        (name, compat.rotary_kind(name, decoder), buffer)
        for name, buffer in decoder.named_buffers()
        if name.endswith("inv_freq") and not name.endswith("original_inv_freq")
    ]


# --- norms -----------------------------------------------------------------------------------------------------------


def norms(model: Any) -> Iterator[NormFacts]:
    """Every normalisation module of the text decoder, with the epsilon that acts in it."""
    expected = loaded_config(model).eps
    guess = float(expected.value) if expected is not None and usable_epsilon(expected.value) else USUAL_EPS
    fallback = next(text_decoder(model).parameters())
    for name, module in norm_modules(model):
        like = next(module.parameters(), fallback)
        dtype = dtype_name(like.dtype)
        measured = measured_eps(module, guess, like)
        yield NormFacts(
            name=name,
            attribute=_stored_eps(module),
            measured=measured,
            dtype=dtype,
            tolerance=_tolerance(measured, guess, dtype),
        )


def _stored_eps(module: Any) -> float | None:
    value = getattr(module, epsilon_attribute(module) or "eps", None)
    return float(value) if isinstance(value, (int, float)) else None


def norm_modules(model: Any) -> list[tuple[str, Any]]:
    """(name, module) of the text decoder's norms."""
    return [(name, module) for name, module in text_decoder(model).named_modules() if "Norm" in type(module).__name__]


def epsilon_attribute(module: Any) -> str:
    """Name under which a norm stores its epsilon, "" if under none that is known."""
    return next((name for name in EPS_ATTRIBUTES if hasattr(module, name)), "")


@torch.no_grad()
def measured_eps(module: Any, guess: float, like: torch.Tensor) -> float | None:
    """The epsilon that acts: y = w x / sqrt(mean(x^2) + eps), solved from two inputs.

    Inputs alternate in sign, so that a LayerNorm's mean is 0; each is fed with both signs, so that a bias cancels;
    the ratio of a small and a large input's outputs is free of the weight.

    Args:
        module: the norm.
        guess: where it is expected; the small input's RMS is near its square root, where the ratio is steepest.
        like: a tensor of the dtype and on the device in which the module is fed.

    Returns:
        None if the module takes no such input (more than one, say), or its outputs tell nothing.
    """
    shape = _input_shape(module)
    small, large = _inputs(guess)
    signs = torch.ones(shape, dtype=like.dtype, device=like.device)
    signs[..., 1::2] = -1
    signs[..., shape[-1] - shape[-1] % 2 :] = 0
    inputs = torch.stack([scale * signs for scale in (small, -small, large, -large)])
    try:
        outputs: Floats = module(inputs).double().cpu().numpy()
    except Exception:  # whatever a family calls a norm: one that cannot be fed so is not measured
        return None
    near, far = (outputs[0] - outputs[1]) / 2, (outputs[2] - outputs[3]) / 2
    if outputs.shape != tuple(inputs.shape) or not np.isfinite(outputs).all() or not far.any():
        return None
    # Summed, so that channels with a small weight, whose rounding is coarse, count little.
    ratio = float(np.sum(near * np.sign(far)) / np.sum(np.abs(far)))
    fed = (shape[-1] - shape[-1] % 2) / shape[-1]
    return _solved(ratio, small, large, fed)


def _input_shape(module: Any) -> tuple[int, ...]:
    """Of the vector that a norm takes; any width will do for norms that name none."""
    weight = getattr(module, "weight", None)
    # Norms without a weight keep a scalar 1 in some releases.
    if weight is not None and weight.ndim:
        return tuple(weight.shape)
    named = getattr(module, "normalized_shape", None)
    return tuple(map(int, named)) if named else (64,)


def _inputs(guess: float) -> tuple[float, float]:
    """RMS of the small and the large input: powers of two, which every dtype holds exactly."""
    small = float(2.0 ** round(math.log2(guess) / 2))
    return small, max(LARGE_INPUT, LARGER * small)


def _solved(ratio: float, small: float, large: float, fed: float) -> float | None:
    """Epsilon from the ratio of the outputs, ratio^2 = s^2 (L^2 f + eps) / (L^2 (s^2 f + eps)).

    None where the outputs grow as the inputs do, as those of no norm would.
    """
    rest = (ratio * large) ** 2 - small**2
    return fed * (small * large) ** 2 * (1 - ratio**2) / rest if rest > EPSILON["float32"] * small**2 else None


def _tolerance(measured: float | None, guess: float, dtype: str) -> float:
    """Relative error of the measurement, with a few roundings of the ratio.

    d(eps)/eps = 2 (s^2 + eps) (L^2 + eps) / (eps (L^2 - s^2)) d(ratio)/ratio.
    """
    eps = measured if measured is not None and measured > 0 else guess
    roundings = 2 * EPSILON[dtype] + 8 * EPSILON["float32"]
    small, large = (one**2 for one in _inputs(guess))
    return 2 * (small + eps) / eps * (large + eps) / (large - small) * roundings
