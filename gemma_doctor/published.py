"""Reads a decoder's configuration, whatever the spelling: a published config.json, or a loaded config's `to_dict()`.

Only what the text says is reported. Defaults are the loading library's business, and a frequent place for faults:
some published files name neither heads nor theta. No torch, no transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemma_doctor.evidence import FULL, SLIDING, Claim, ConfigFacts, RopeClaim

WINDOW_KEYS = ("sliding_window", "attention_window_size", "sliding_window_size", "window_size", "local_window_size")
# starcoder2 publishes norm_epsilon and layer_norm_epsilon; the first is the one that is read.
EPS_KEYS = ("rms_norm_eps", "layer_norm_eps", "norm_epsilon", "layer_norm_epsilon", "norm_eps")
WINDOW_SWITCH = "use_sliding_window"
PATTERN_KEYS = ("layer_types", "sliding_window_pattern", "block_types", "max_window_layers")
FULL_ROPE_KEYS = ("rope_theta", "global_rope_theta", "rope_scaling")
LOCAL_ROPE_KEYS = ("rope_local_base_freq", "local_rope_theta")
LOOSE_ROPE_KEYS = ("partial_rotary_factor", "original_max_position_embeddings")
ROPE_KEYS = ("rope_parameters", *FULL_ROPE_KEYS, *LOCAL_ROPE_KEYS, *LOOSE_ROPE_KEYS)
# In these families the flat keys rope_theta and rope_scaling speak of the full layers only.
TWO_THETA_FAMILIES = ("gemma3", "gemma3_text", "gemma3n", "gemma3n_text")
# Here all layers share the flat theta, and the full ones alone are scaled.
FULL_SCALED_FAMILIES = ("olmo3",)


def text_part(mapping: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The text decoder's own mapping and the prefix of its keys: "text_config." if it is nested, else ""."""
    nested = mapping.get("text_config")
    return (nested, "text_config.") if isinstance(nested, Mapping) else (mapping, "")


def read(mapping: Mapping[str, Any], origin: str) -> ConfigFacts:
    """Read one spelling.

    Args:
        mapping: the whole configuration.
        origin: who says so, for messages ("published config.json", "loaded config", "preset gemma-3-270m").
    """
    text, prefix = text_part(mapping)
    family = str(text.get("model_type") or mapping.get("model_type") or "")
    layers = _whole(text, "num_hidden_layers")
    kinds, pattern = _layer_kinds(text, prefix, layers)
    return ConfigFacts(
        origin=origin,
        family=family,
        window=_first(text, prefix, WINDOW_KEYS),
        window_switch=_first(text, prefix, (WINDOW_SWITCH,)),
        layer_kinds=kinds,
        pattern=pattern,
        rope=_rope(text, prefix, family),
        eps=_first(text, prefix, EPS_KEYS),
        layers=layers,
        hidden_size=_whole(text, "hidden_size"),
        heads=_whole(text, "num_attention_heads"),
        kv_heads=_whole(text, "num_key_value_heads"),
        head_dim=_whole(text, "head_dim"),
        global_head_dim=_whole(text, "global_head_dim"),
        max_positions=_whole(text, "max_position_embeddings"),
        causal=text.get("use_bidirectional_attention") not in (True, "all"),
        raw=text,
        prefix=prefix,
    )


def special_ids(mapping: Mapping[str, Any]) -> set[int]:
    """Ids that a configuration names for some purpose (`eos_token_id`, `image_token_index`, ...), lists included."""
    named = [value for key, value in mapping.items() if "token_id" in key or "token_index" in key]
    flat = [one for value in named for one in (value if isinstance(value, list) else [value])]
    return {one for one in flat if isinstance(one, int) and not isinstance(one, bool)}


def _first(text: Mapping[str, Any], prefix: str, keys: tuple[str, ...]) -> Claim | None:
    return next((Claim(prefix + key, text[key]) for key in keys if key in text), None)


def _whole(text: Mapping[str, Any], key: str) -> int | None:
    value = text.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _layer_kinds(
    text: Mapping[str, Any], prefix: str, layers: int | None
) -> tuple[tuple[str, ...] | None, Claim | None]:
    """Kinds as written. `_sliding_window_pattern`, which releases save but never read, says nothing."""
    listed = text.get("layer_types")
    if isinstance(listed, (list, tuple)):
        return tuple(map(str, listed)), Claim(prefix + "layer_types", listed)
    if layers is None:
        return None, None
    period, blocks = _whole(text, "sliding_window_pattern"), text.get("block_types")
    if period is not None and period > 0:
        kinds = tuple(FULL if (layer + 1) % period == 0 else SLIDING for layer in range(layers))
        return kinds, Claim(prefix + "sliding_window_pattern", period)
    if isinstance(blocks, (list, tuple)) and blocks:
        return tuple(str(blocks[layer % len(blocks)]) for layer in range(layers)), Claim(prefix + "block_types", blocks)
    first_sliding = _whole(text, "max_window_layers")
    if text.get(WINDOW_SWITCH) is True and first_sliding is not None:
        kinds = tuple(SLIDING if layer >= first_sliding else FULL for layer in range(layers))
        return kinds, Claim(prefix + "max_window_layers", first_sliding)
    return None, None


def _rope(text: Mapping[str, Any], prefix: str, family: str) -> dict[str, RopeClaim]:
    parameters = text.get("rope_parameters")
    if not isinstance(parameters, Mapping):
        return _old_rope(text, prefix, family)
    nested = {kind: values for kind, values in parameters.items() if isinstance(values, Mapping)}
    if nested:
        return {kind: _claim(f"{prefix}rope_parameters.{kind}", values) for kind, values in nested.items()}
    flat = _claim(prefix + "rope_parameters", {**_loose(text, ("partial_rotary_factor",)), **parameters})
    return _by_kind(flat, family)


def _old_rope(text: Mapping[str, Any], prefix: str, family: str) -> dict[str, RopeClaim]:
    """The spelling of transformers 4: rope_theta, rope_local_base_freq, rope_scaling."""
    scaling = text.get("rope_scaling")
    values = _loose(text, LOOSE_ROPE_KEYS)
    values |= scaling if isinstance(scaling, Mapping) else {}
    rope: dict[str, RopeClaim] = {}
    key = next((one for one in FULL_ROPE_KEYS if one in text), None)
    local = next((one for one in LOCAL_ROPE_KEYS if one in text), None)
    if key:
        theta = {"rope_theta": text[key]} if key != "rope_scaling" else {}
        written = "default" if "rope_scaling" in text and scaling is None else ""
        flat = _claim(prefix + key, {**values, **theta}, written)
        rope = {FULL: flat} if local or family in TWO_THETA_FAMILIES else _by_kind(flat, family)
    if local:
        rope[SLIDING] = _claim(prefix + local, {"rope_theta": text[local]}, "default")
    return rope


def _by_kind(flat: RopeClaim, family: str) -> dict[str, RopeClaim]:
    if family in FULL_SCALED_FAMILIES:
        return {FULL: flat, SLIDING: RopeClaim(flat.key, flat.theta, "default")}
    return {"": flat}


def _loose(text: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """Rotary parameters that some families write beside the rope keys."""
    return {key: text[key] for key in keys if key in text}


def _claim(key: str, values: Mapping[str, Any], rope_type: str = "") -> RopeClaim:
    """A theta that is no number stays among the parameters, for the check to name it."""
    rest = dict(values)
    theta = rest.pop("rope_theta", None)
    if theta is not None and _number(theta) is None:
        rest["rope_theta"] = theta
    named = [rest.pop(name) for name in ("rope_type", "type") if name in rest]
    return RopeClaim(key, _number(theta), str(named[0]) if named else rope_type, rest)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:  # JSON knows whole numbers of any size
        return float("inf") if value > 0 else float("-inf")
