"""Faults that only caches and their layers can have: how to put them in, release by release."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from gemma_doctor.compat.caches import cache_layers, forget_kept_cache, returned_cache, why_no_cache_layers
from gemma_doctor.compat.generation import generate
from gemma_doctor.undone import attributes_set, method_replaced

_NO_SLIDING_LAYERS: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


class CacheUpdate(NamedTuple):
    """What an update of a cache has done.

    Attributes:
        cache, layer: where.
        seen, fed: tokens before it, and in it.
        handed: keys and values that it hands over.
    """

    cache: Any
    layer: int
    seen: int
    fed: int
    handed: tuple[Any, ...]


@contextmanager
def reporting_one_less(layer: Any) -> Iterator[None]:
    """Let one cache layer report one token less than it has seen."""
    seen = layer.get_seq_length
    with method_replaced(layer, "get_seq_length", lambda *args: max(seen(*args) - 1, 0)):
        yield


@contextmanager
def storing_float64(layer: Any) -> Iterator[None]:
    """Let one cache layer store float64; what it hands over has the dtype that it was given."""
    update = layer.update

    def wider(key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        held = update(key_states.double(), value_states.double(), *args, **kwargs)
        return tuple(states.to(key_states.dtype) for states in held)

    with method_replaced(layer, "update", wider):
        yield


@contextmanager
def cache_updates_edited(edit: Callable[[CacheUpdate], Any]) -> Iterator[None]:
    """Change what updates of all caches do.

    Args:
        edit: after an update, to the keys and values that are handed over instead.
    """

    def wrap(update: Callable[..., Any]) -> Callable[..., Any]:
        def edited(
            cache: Any, key_states: Any, value_states: Any, layer_idx: int, *args: Any, **kwargs: Any
        ) -> tuple[Any, ...]:
            seen = int(cache.get_seq_length(layer_idx))
            handed = update(cache, key_states, value_states, layer_idx, *args, **kwargs)
            return tuple(edit(CacheUpdate(cache, layer_idx, seen, key_states.shape[2], handed)))

        return edited

    with cache_method_wrapped("update", wrap):
        yield


def edit_held(cache: Any, layer: int, edit: Callable[[tuple[Any, Any]], Sequence[Any]]) -> None:
    """Change keys and values that a layer holds, both in one call."""
    held = cache.layers[layer]
    held.keys, held.values = edit(held_states(cache, layer))


def held_states(cache: Any, layer: int) -> tuple[Any, Any]:
    """Keys and values that a layer holds."""
    return cache.layers[layer].keys, cache.layers[layer].values


@contextmanager
def sliding_layers_reporting_held() -> Iterator[None]:
    """Let sliding cache layers count the keys that they hold, as layers that drop none do."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    with method_replaced(DynamicSlidingWindowLayer, "get_seq_length", DynamicLayer.get_seq_length):
        yield


@contextmanager
def sliding_layers_made_for(window: Callable[[int], int]) -> Iterator[None]:
    """Let sliding cache layers be made for another window than they are asked for."""
    from transformers.cache_utils import DynamicSlidingWindowLayer

    made = DynamicSlidingWindowLayer.__init__

    def other(layer: Any, sliding_window: int, *args: Any, **kwargs: Any) -> None:
        made(layer, window(sliding_window), *args, **kwargs)

    with method_replaced(DynamicSlidingWindowLayer, "__init__", other):
        yield


@contextmanager
def keys_shared_from(source: Any, instead_of: Any, readers: Sequence[Any]) -> Iterator[None]:
    """Let attention modules without keys of their own read those of another module than now.

    Args:
        source: the module that they are to read from; instead_of: from which they do.
        readers: modules without keys of their own.
    """
    changes = [(source, "store_full_length_kv", True)]
    if hasattr(readers[0], "kv_shared_layer_index"):  # they name it
        changes += [(one, "kv_shared_layer_index", source.layer_idx) for one in readers]
    else:  # they read what the last module of their kind has stored
        changes.append((instead_of, "store_full_length_kv", False))
    with attributes_set(changes):
        yield


def turn_values(cache: Any) -> None:
    """Move the values of the last layer that stores any by one token; its keys stay."""
    layer = _last_that_stores(cache)
    layer.values = layer.values.roll(1, dims=2)


def keep_dropped_keys(cache: Any, layer: int) -> None:
    """Let one layer keep room for every key that it has dropped, in front of those that it holds."""
    held = cache.layers[layer]
    dropped = held.get_seq_length() - held.keys.shape[-2]
    if dropped > 0:
        whole = held.keys.new_zeros((*held.keys.shape[:-2], dropped + held.keys.shape[-2], held.keys.shape[-1]))
        held.keys = whole[..., dropped:, :].copy_(held.keys)


@contextmanager
def cache_method_wrapped(name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Wrap a method of all caches, such as crop or reorder_cache, in every class that has one of its own."""
    from transformers.cache_utils import Cache

    classes, queue = [], [Cache]
    while queue:
        one = queue.pop()
        queue.extend(one.__subclasses__())
        if name in vars(one) and one not in classes:
            classes.append(one)
    with ExitStack() as replaced:
        for one in classes:
            replaced.enter_context(method_replaced(one, name, wrap(vars(one)[name])))
        yield


def spoil_keys(cache: Any) -> None:
    """Give the keys of the last layer that stores any an entry more than they have."""
    layer = _last_that_stores(cache)
    layer.keys = layer.keys.new_zeros((*layer.keys.shape[:-1], layer.keys.shape[-1] + 1))


@contextmanager
def static_sliding_layers_unbuildable() -> Iterator[None]:
    """Let the constructor of static sliding cache layers take no arguments."""
    from transformers.cache_utils import StaticSlidingWindowLayer

    with method_replaced(StaticSlidingWindowLayer, "__init__", object.__init__):
        yield


def _last_that_stores(cache: Any) -> Any:
    return [one for one in cache.layers if one.keys is not None and one.keys.numel()][-1]


def why_no_sliding_layers(model: Any) -> str:
    """Why the cache that generate() makes has no layers that grow and then drop keys; "" if it has some.

    Several faults ask: a model generates once.
    """
    if model not in _NO_SLIDING_LAYERS:
        _NO_SLIDING_LAYERS[model] = why_no_cache_layers() or _no_sliding_layers(model)
    return _NO_SLIDING_LAYERS[model]


def _no_sliding_layers(model: Any) -> str:
    import torch

    ids = torch.ones((1, 1), dtype=torch.long, device=model.device)
    layers = cache_layers(returned_cache(generate(model, ids, torch.ones_like(ids), 1)))
    forget_kept_cache(model)
    if any(one.static for one in layers):
        return "generate() makes a cache with a fixed number of slots here"
    return "" if any(one.sliding for one in layers) else "generate() makes a cache that keeps every key here"
