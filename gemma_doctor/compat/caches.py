"""Key-value caches: what they hold, how they are handed over, and one fault that only their layers can have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gemma_doctor.evidence import CacheLayer


def is_cache(candidate: object) -> bool:
    from transformers.cache_utils import Cache

    return isinstance(candidate, Cache)


def cache_layers(cache: Any) -> tuple[CacheLayer, ...]:
    """What every layer of a cache has seen and holds.

    Caches are lists of layer objects since 4.54; before, two lists of tensors. The fixed-size caches of those days
    have no cumulative length (they count the non-zero slots of layer 0), so `seen` is None there.
    """
    layers = getattr(cache, "layers", None)
    if layers is not None:
        return tuple(_cache_layer(index, layer) for index, layer in enumerate(layers) if layer.keys is not None)
    fixed = hasattr(cache, "max_cache_len")
    sliding = getattr(cache, "is_sliding", None)
    return tuple(
        CacheLayer(
            layer=index,
            seen=None if fixed else int(cache.get_seq_length(index)),
            stored=int(keys.shape[-2]),
            sliding=bool(sliding[index]) if sliding is not None else False,
            static=fixed,
            bytes=keys.nbytes + cache.value_cache[index].nbytes,
            allocated=_allocated(keys, cache.value_cache[index]),
        )
        for index, keys in enumerate(cache.key_cache)
        if keys.numel()
    )


def _cache_layer(index: int, layer: Any) -> CacheLayer:
    return CacheLayer(
        layer=index,
        seen=int(layer.get_seq_length()),
        stored=int(layer.keys.shape[-2]),
        sliding=bool(getattr(layer, "is_sliding", False)),
        static=hasattr(layer, "max_cache_len"),
        recording=bool(getattr(layer, "record_past", False)),
        bytes=layer.keys.nbytes + layer.values.nbytes,
        allocated=_allocated(layer.keys, layer.values),
    )


def _allocated(*tensors: Any) -> int:
    """Bytes of the storages behind some tensors; one that several share counts once."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): int(storage.nbytes()) for storage in storages}.values())


def cache_argument(cache: Any) -> dict[str, Any]:
    """The keyword under which `generate` and `forward` take a cache: `cache` since 5.2x, `past_key_values` before."""
    return {cache_keyword(): cache}


def returned_cache(output: Any) -> Any:
    """The cache in a model's or generate's output."""
    return getattr(output, cache_keyword())


def cache_keyword() -> str:
    from transformers.modeling_outputs import CausalLMOutputWithPast

    return "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"


def forget_kept_cache(model: Any) -> None:
    """Drop the static cache that generate() keeps on the model between calls (seen in 4.57).

    An exception in a forward leaves it half made, and every later generate() would stumble over it.
    """
    vars(model).pop("_cache", None)


def why_no_cache_layers() -> str:
    """Why caches have no layer objects in this release; "" if they have."""
    from transformers import cache_utils

    return "" if hasattr(cache_utils, "CacheLayerMixin") else "caches have no layer objects before transformers 4.54"


@contextmanager
def updates_watched(cache: Any, see: Callable[[int, Any], None]) -> Iterator[None]:
    """Call `see(layer, key states)` before every update of a cache, which hands over the keys of new tokens."""
    update = cache.update

    def watched(key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        see(layer_idx, key_states)
        return update(key_states, value_states, layer_idx, *args, **kwargs)

    cache.update = watched
    try:
        yield
    finally:
        del cache.update  # the class's own shows again


@contextmanager
def reporting_one_less(layer: Any) -> Iterator[None]:
    """Let one cache layer report one token less than it has seen."""
    seen = layer.get_seq_length
    layer.get_seq_length = lambda *args: max(seen(*args) - 1, 0)
    try:
        yield
    finally:
        del layer.get_seq_length  # the class's own shows again


@contextmanager
def storing_float64(layer: Any) -> Iterator[None]:
    """Let one cache layer store float64; what it hands over has the dtype that it was given."""
    update = layer.update

    def wider(key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        held = update(key_states.double(), value_states.double(), *args, **kwargs)
        return tuple(states.to(key_states.dtype) for states in held)

    layer.update = wider
    try:
        yield
    finally:
        del layer.update  # the class's own shows again


def turn_values(cache: Any) -> None:
    """Move the values of the last layer that stores any by one token; its keys stay."""
    layer = [one for one in cache.layers if one.keys is not None and one.keys.numel()][-1]
    layer.values = layer.values.roll(1, dims=2)


def keep_dropped_keys(cache: Any, layer: int) -> None:
    """Let one layer keep room for every key that it has dropped, in front of those that it holds."""
    held = cache.layers[layer]
    dropped = held.get_seq_length() - held.keys.shape[-2]
    if dropped > 0:
        whole = held.keys.new_zeros((*held.keys.shape[:-2], dropped + held.keys.shape[-2], held.keys.shape[-1]))
        held.keys = whole[..., dropped:, :].copy_(held.keys)
