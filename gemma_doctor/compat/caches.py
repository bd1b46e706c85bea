"""Key-value caches: what they hold, and how they are made and handed over."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gemma_doctor.compat.configs import text_config
from gemma_doctor.evidence import CacheLayer
from gemma_doctor.undone import method_replaced


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


def dynamic_cache(model: Any = None) -> Any:
    """A new DynamicCache; for a model, where this release's takes a config, with that config: it then slides."""
    from transformers import DynamicCache

    if model is None or not dynamic_cache_takes_config():
        return DynamicCache()
    return DynamicCache(config=text_config(model))


def dynamic_cache_takes_config() -> bool:
    """Since 4.56."""
    from transformers import DynamicCache

    return "config" in inspect.signature(DynamicCache.__init__).parameters


def static_caches(model: Any, length: int) -> Iterator[tuple[str, Any]]:
    """New fixed-size caches for one row of `length` tokens, by the names of their classes.

    Up to 4.55 families whose default it is (Gemma, Cohere) have a HybridCache besides: its sliding layers have W slots.
    """
    from transformers import StaticCache, cache_utils

    classes = [StaticCache]
    hybrid = getattr(cache_utils, "HybridCache", None)
    if hybrid is not None and not issubclass(hybrid, StaticCache) and default_cache(model) == "hybrid":
        classes.append(hybrid)
    weight = next(model.parameters())
    for one in classes:
        # 4.50 takes both names of the batch size, and warns of the older one
        made = one(
            config=text_config(model), max_batch_size=1, max_cache_len=length, device=weight.device, dtype=weight.dtype
        )
        yield one.__name__, made


def default_cache(model: Any) -> str:
    """Which cache generate() makes unless told otherwise: "hybrid" for Gemma and Cohere up to 4.55, else ""."""
    return str(getattr(model.generation_config, "cache_implementation", None) or "")


def quantised_cache_options(length: int) -> dict[str, Any]:
    """Generation options for a quantised cache that leaves the last `length` tokens as they are.

    Raises:
        LookupError: no package that quantises is installed.
    """
    from transformers.utils import is_hqq_available, is_optimum_quanto_available

    if not is_optimum_quanto_available() and not is_hqq_available():
        raise LookupError("neither optimum-quanto nor hqq is installed")
    backend = "quanto" if is_optimum_quanto_available() else "hqq"
    options: Any = {"backend": backend, "residual_length": length}
    try:
        from transformers import QuantizedCacheConfig  # up to 4.55
    except ImportError:
        pass
    else:
        options = QuantizedCacheConfig(**options)
    return {"cache_implementation": "quantized", "cache_config": options}


def place_argument(model: Any, cache: Any, start: int, length: int) -> dict[str, Any]:
    """What a forward has to be told about the place of its tokens beside the cache.

    Fixed-size caches need it as long as models take it: they count their slots in use, and a sliding layer's are full
    from W tokens on.
    """
    import torch

    layers = getattr(cache, "layers", None)
    fixed = hasattr(cache, "max_cache_len") if layers is None else any(hasattr(one, "max_cache_len") for one in layers)
    if not fixed or "cache_position" not in inspect.signature(model.forward).parameters:
        return {}
    return {"cache_position": torch.arange(start, start + length, device=next(model.parameters()).device)}


def make_croppable(cache: Any) -> None:
    """Let a cache remember what it drops, where it has to be asked (5.14 on), so that it can be rolled back.

    Raises:
        LookupError: it has no crop().
    """
    if not hasattr(cache, "crop"):
        raise LookupError(f"{type(cache).__name__} has no crop()")
    if hasattr(cache, "activate_past_recording"):
        cache.activate_past_recording()


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

    with method_replaced(cache, "update", watched):
        yield
