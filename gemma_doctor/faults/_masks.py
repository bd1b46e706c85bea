"""Changes the mask of one layer, in prompts and at decode steps, whatever the library hands over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from gemma_doctor import compat
from gemma_doctor.capture.hooks import handed_cache, hooked
from gemma_doctor.capture.masks import readable
from gemma_doctor.faults import one_attention_of
from gemma_doctor.loading import Patient
from gemma_doctor.oracle import causal, sliding


@dataclass(frozen=True)
class LayerMask:
    """A healthy mask.

    Attributes:
        readable: shape (b, 1, q, k).
        queries, keys: columns of the sequence, shapes (q, 1) and (k,).
        window: W, 0 without one.
    """

    readable: torch.Tensor
    queries: torch.Tensor
    keys: torch.Tensor
    window: int

    @property
    def back(self) -> torch.Tensor:
        """How far back each key lies, shape (q, k)."""
        return self.queries - self.keys

    @property
    def unpadded(self) -> torch.Tensor:
        """What may be read where there are no pads, shape (q, k)."""
        rule = sliding(self.window) if self.window else causal
        cells: torch.Tensor = rule(self.queries, self.keys)
        return cells

    @property
    def real(self) -> torch.Tensor:
        """Keys that are no pads, shape (b, 1, 1, k). Known for whole prompts, where real tokens see themselves; later
        none.
        """
        if len(self.queries) != len(self.keys):
            return torch.zeros_like(self.keys, dtype=torch.bool)
        return self.readable.diagonal(dim1=-2, dim2=-1)[..., None, :]


@contextmanager
def mask_edited(patient: Patient, edit: Callable[[LayerMask], torch.Tensor]) -> Iterator[None]:
    """Let one layer of every model read other keys; where the library passes no mask, one is handed over.

    Args:
        patient: whose models are changed.
        edit: what may be read instead, shape (b, 1, q, k).
    """

    def editing(window: int) -> Callable[..., Any]:
        def change(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
            mask = kwargs.get("attention_mask")
            before = _layer_mask(module, args, kwargs, window)
            after = edit(before)
            if not torch.equal(after, before.readable):
                kwargs["attention_mask"] = _like(mask, after)
            return args, kwargs

        return change

    with ExitStack() as hooks:
        for model in patient.models:
            module, window = one_attention_of(model)
            hooks.enter_context(hooked([module], editing(window or 0)))
        yield


def _layer_mask(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], window: int) -> LayerMask:
    mask = kwargs.get("attention_mask")
    hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
    cache = handed_cache(args, kwargs)
    layers = () if cache is None else compat.cache_layers(cache)
    held = next((one for one in layers if one.layer == module.layer_idx), None)
    rows, fed = hidden.shape[:2]
    total = fed + ((held.seen or 0) if held else 0)
    width = fed + (held.stored if held else 0) if mask is None else mask.shape[-1]
    queries = torch.arange(total - fed, total, device=hidden.device)[:, None]
    keys = torch.arange(width, device=hidden.device) + max(0, total - width)
    if mask is None:
        without = LayerMask(torch.empty(0), queries, keys, window)
        return LayerMask(without.unpadded.expand(rows, 1, fed, width), queries, keys, window)
    return LayerMask(readable(mask), queries, keys, window)


def _like(mask: torch.Tensor | None, cells: torch.Tensor) -> torch.Tensor:
    """As a kernel takes it: additive where the library's own is."""
    if mask is None or mask.dtype is torch.bool:
        return cells
    return torch.where(cells, 0.0, torch.finfo(mask.dtype).min).to(mask.dtype)
