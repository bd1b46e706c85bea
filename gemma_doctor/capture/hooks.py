"""Forward pre-hooks, for the duration of a block."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from gemma_doctor import compat


def fed_columns(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """How many tokens or embeddings a text decoder is fed with."""
    candidates = (kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args)
    return int(next(value.shape[1] for value in candidates if isinstance(value, torch.Tensor)))


def handed_cache(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The cache among the arguments of a module, under whatever name; None if there is none."""
    return next((value for value in (*kwargs.values(), *args) if compat.is_cache(value)), None)


@contextlib.contextmanager
def hooked(modules: Iterable[Any], hook: Callable[..., Any]) -> Iterator[None]:
    """Register `hook(module, args, kwargs)` as a forward pre-hook of `modules`; removed at the end."""
    handles = [module.register_forward_pre_hook(hook, with_kwargs=True) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
