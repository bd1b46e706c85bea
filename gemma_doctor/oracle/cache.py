"""What each layer keeps in the key-value cache: arithmetic on a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gemma_doctor.evidence import FULL, SLIDING

if TYPE_CHECKING:
    from gemma_doctor.evidence import ConfigFacts

ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
# Keys that decide about the cache in these families; a class has a default for those that are not named.
FAMILY_KEYS = {
    "gemma3n": ("num_kv_shared_layers",),
    "gemma4": ("num_kv_shared_layers", "attention_k_eq_v", "num_global_key_value_heads", "global_head_dim"),
}
LATENT_KEYS = ("kv_lora_rank", "v_head_dim")
# Families that size their keys by these (Falcon, GPTBigCode, MPT, JetMoE, Zamba, Inkling) may not read the usual ones.
OWN_SIZE_KEYS = (
    *("multi_query", "num_kv_heads", "n_head_kv", "kv_n_heads", "n_kv_heads", "swa_num_key_value_heads"),
    *("kv_channels", "attention_head_dim"),
)
UNITS = {"TB": 10**12, "GB": 10**9, "MB": 10**6}


def size_in_words(size: int) -> str:
    """ "87.1 GB" of 87,100,000,000 bytes; small ones in bytes."""
    unit = next((unit for unit, one in UNITS.items() if size >= one), "")
    if unit:
        return f"{size / UNITS[unit]:,.1f} {unit}"
    return "1 byte" if size == 1 else f"{size:,} bytes"


@dataclass(frozen=True)
class KvLayer:
    """What one decoder layer keeps in the key-value cache.

    Attributes:
        kind: as the configuration names it.
        window: W, None where every earlier key is read.
        kv_heads, head_dim: sizes of its keys, and of its values.
        shares: it reads another layer's keys and values, and keeps none.
    """

    kind: str
    window: int | None
    kv_heads: int
    head_dim: int
    shares: bool = False

    def keys(self, context: int) -> int:
        """Keys that the last of `context` tokens needs here: its own, and at most W-1 that were kept for it.

        So what is kept after `context` tokens, for the one that comes, is keys(context + 1) - 1.
        """
        if self.shares:
            return 0
        return context if self.window is None else min(context, self.window)

    def token_bytes(self, dtype: str) -> int:
        """Bytes of one token's key and value, in a dtype of ITEM_BYTES."""
        return 0 if self.shares else 2 * self.kv_heads * self.head_dim * ITEM_BYTES[dtype]


def latent(facts: ConfigFacts) -> str:
    """The key that says that the cache holds something else than keys and values of one size; "" if none does."""
    return next((key for key in LATENT_KEYS if facts.raw.get(key)), "")


def kv_layers(facts: ConfigFacts) -> tuple[KvLayer, ...]:
    """What each layer of a configuration keeps in the cache. Nothing that it does not name is filled in.

    Raises:
        ValueError: something that decides is not named or not usable, or is not computed here.
    """
    if latent(facts):
        raise ValueError(f"latent attention ({latent(facts)}): what its cache takes depends on the release")
    own_key = next((key for key in OWN_SIZE_KEYS if facts.raw.get(key) is not None), None)
    if own_key:
        raise ValueError(f"the configuration names {own_key}: how its family sizes keys by that is not computed here")
    families = (keys for family, keys in FAMILY_KEYS.items() if facts.family.startswith(family))
    unnamed = [key for key in next(families, ()) if key not in facts.raw]
    if unnamed and "per_layer_config" not in facts.raw:  # which a class writes once it has filled in all
        raise ValueError(f"the configuration names no {unnamed[0]}")
    kinds, shared = _kinds(facts), facts.raw.get("num_kv_shared_layers") or 0
    if shared and not (_positive(shared) and shared < len(kinds)):
        raise ValueError("num_kv_shared_layers is no number of layers")
    window, own = facts.window_in_force, len(kinds) - shared
    return tuple(
        KvLayer(kind, window if kind == SLIDING else None, *_kv_sizes(facts, index, kind), shares=index >= own)
        for index, kind in enumerate(kinds)
    )


def _kinds(facts: ConfigFacts) -> tuple[str, ...]:
    """The kind of every layer."""
    kinds, window, named = facts.layer_kinds, facts.window_in_force, facts.window is not None
    if kinds is None and facts.layers and named and window is None:
        kinds = (FULL,) * facts.layers  # the window is written as null, or switched off
    if not kinds or len(kinds) != facts.layers:
        raise ValueError("the configuration names no kind for each of its layers")
    unknown = sorted(set(kinds) - {SLIDING, FULL})
    if unknown:
        raise ValueError(f"layers of kind {unknown[0]}: what their cache takes is not computed here")
    if SLIDING in kinds and not (named and (window is None or _positive(window))):
        raise ValueError("the configuration names no usable window")
    return kinds


def _kv_sizes(facts: ConfigFacts, index: int, kind: str) -> tuple[int, int]:
    """Key-value heads of one layer, and the size of each. Gemma 4 has other ones in its full layers."""
    heads, size, raw = facts.kv_heads, facts.head_dim, facts.raw
    if kind == FULL:
        size = facts.global_head_dim or size
        heads = (raw.get("attention_k_eq_v") and raw.get("num_global_key_value_heads")) or heads
    own = _overrides(raw).get(index, {})
    sizes: dict[str, Any] = {
        "num_key_value_heads": own.get("num_key_value_heads", heads),
        "head_dim": own.get("head_dim", size),
    }
    unusable = [key for key, value in sizes.items() if not _positive(value)]
    if unusable:
        raise ValueError(f"the configuration names no usable {unusable[0]}")
    return sizes["num_key_value_heads"], sizes["head_dim"]


def _overrides(raw: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """What single layers have otherwise, by layer. Classes write it under the layers' numbers, as texts with zeros."""
    by_layer = raw.get("per_layer_config") or {}
    try:
        return {int(layer): dict(values) for layer, values in by_layer.items()}
    except (AttributeError, TypeError, ValueError):
        raise ValueError("per_layer_config is no mapping of layers to values") from None


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
