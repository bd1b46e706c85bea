"""Forward pre-hooks, for the duration of a block."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch


def fed_columns(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """How many tokens or embeddings a text decoder is fed with."""
    candidates = (kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args)
    return int(next(value.shape[1] for value in candidates if isinstance(value, torch.Tensor)))


@contextlib.contextmanager
def hooked(modules: Iterable[Any], hook: Callable[..., Any]) -> Iterator[None]:
    """Register `hook(module, args, kwargs)` as a forward pre-hook of `modules`; removed at the end."""
    handles = [module.register_forward_pre_hook(hook, with_kwargs=True) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
