"""Faults that only caches and their layers can have: how to put them in, release by release."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


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
    before = [vars(one)[name] for one in classes]
    try:
        for one, method in zip(classes, before, strict=True):
            setattr(one, name, wrap(method))
        yield
    finally:
        for one, method in zip(classes, before, strict=True):
            setattr(one, name, method)


def spoil_keys(cache: Any) -> None:
    """Give the keys of the last layer that stores any an entry more than they have."""
    layer = _last_that_stores(cache)
    layer.keys = layer.keys.new_zeros((*layer.keys.shape[:-1], layer.keys.shape[-1] + 1))


@contextmanager
def static_sliding_layers_unbuildable() -> Iterator[None]:
    """Let the constructor of static sliding cache layers take no arguments."""
    from transformers.cache_utils import StaticSlidingWindowLayer as Layer

    before = vars(Layer)["__init__"]
    Layer.__init__ = object.__init__
    try:
        yield
    finally:
        Layer.__init__ = before


def _last_that_stores(cache: Any) -> Any:
    return [one for one in cache.layers if one.keys is not None and one.keys.numel()][-1]
