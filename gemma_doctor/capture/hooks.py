"""Forward pre-hooks, for the duration of a block, and what they see of a forward."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Fed:
    """What one forward of a text decoder is fed.

    Attributes:
        decoder: the text decoder.
        columns: tokens of each row, pads included.
        start: columns that its cache had seen before, 0 without one.
        cache: as it is handed over, None if it is not.
        uncached: there is none, and the model makes none.
        padding: which columns so far hold real tokens, bool, shape (b, start + columns); None if it is not told, or in
            another form.
    """

    decoder: Any
    columns: int
    start: int
    cache: Any
    uncached: bool
    padding: torch.Tensor | None

    @classmethod
    def of(cls, decoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Fed:
        """As a forward pre-hook of a text decoder sees it."""
        cache, mask, columns = handed_cache(args, kwargs), kwargs.get("attention_mask"), fed_columns(args, kwargs)
        start = 0 if cache is None else int(cache.get_seq_length())
        padding = None
        if isinstance(mask, torch.Tensor) and mask.dim() == 2 and mask.shape[1] == start + columns:
            padding = mask.bool()
        return cls(
            decoder=decoder,
            columns=columns,
            start=start,
            cache=cache,
            uncached=cache is None and kwargs.get("use_cache") is False,
            padding=padding,
        )

    @property
    def is_decode_step(self) -> bool:
        return self.start > 0 and self.columns == 1


@contextlib.contextmanager
def hooked(modules: Iterable[Any], hook: Callable[..., Any]) -> Iterator[None]:
    """Register `hook(module, args, kwargs)` as a forward pre-hook of `modules`; removed at the end."""
    with contextlib.ExitStack() as handles:
        for module in modules:
            handles.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)
        yield
