"""Changes the masks of some layers, in prompts and at decode steps, whatever the library hands over."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from gemma_doctor import compat
from gemma_doctor.capture.hooks import Fed, handed_cache, hooked
from gemma_doctor.capture.masks import readable
from gemma_doctor.capture.model_facts import attention_modules, text_decoder
from gemma_doctor.evidence import FULL, SLIDING
from gemma_doctor.faults import attention_of, no_window, one_attention_of
from gemma_doctor.loading import Patient
from gemma_doctor.oracle import causal, sliding

Edit = Callable[["LayerMask"], torch.Tensor]


@dataclass(frozen=True)
class LayerMask:
    """A healthy mask.

    Attributes:
        readable: shape (b, 1, q, k).
        queries, keys: columns of the sequence, shapes (q, 1) and (k,).
        window: W of this layer, 0 without one.
        model_window: W of the model's sliding layers, 0 if there are none.
        padding: which columns so far hold real tokens, shape (b, columns).
        is_decode_step: of the forward. Layers with shared keys may compute one query in a prefill, too.
        backend: attention implementation that computes.
    """

    readable: torch.Tensor
    queries: torch.Tensor
    keys: torch.Tensor
    window: int
    model_window: int
    padding: torch.Tensor
    is_decode_step: bool
    backend: str

    @property
    def total(self) -> int:
        """Columns up to and including the last query."""
        return int(self.queries[-1]) + 1

    @property
    def back(self) -> torch.Tensor:
        """How far back each key lies, shape (q, k)."""
        return self.queries - self.keys

    @property
    def unpadded(self) -> torch.Tensor:
        """What may be read where there are no pads, shape (q, k)."""
        return self.cells(self.window, self.keys)

    @property
    def real(self) -> torch.Tensor:
        """Keys that are no pads, shape (b, 1, 1, k)."""
        return self.real_at(self.keys)

    @property
    def without_window(self) -> torch.Tensor:
        """What may be read where the window is ignored, shape (b, 1, q, k)."""
        return self.readable | ((self.back >= 0) & self.real)

    def cells(self, window: int, keys: torch.Tensor) -> torch.Tensor:
        """What a layer may read of some columns where there are no pads, shape (q, k); window 0: it has none."""
        rule = sliding(window) if window else causal
        cells: torch.Tensor = rule(self.queries, keys)
        return cells

    def real_at(self, keys: torch.Tensor) -> torch.Tensor:
        """Which of some columns hold real tokens, shape (b, 1, 1, k)."""
        return (self.padding[:, keys.clamp(max=self.total - 1)] & (keys < self.total))[:, None, None]

    def last(self, width: int) -> torch.Tensor:
        """The last so many columns, shape (width,)."""
        return torch.arange(self.total - width, self.total, device=self.keys.device)


# --- which layers ----------------------------------------------------------------------------------------------------


def one_layer(model: Any) -> list[Any]:
    """The last attention module with keys of its own that slides, or just the last."""
    return [one_attention_of(model)]


def layers_of_kind(model: Any, kind: str) -> list[Any]:
    """All attention modules of a kind, those with another's keys as well."""
    kinds = compat.layer_kinds(compat.text_config(model))
    return [module for index, module in attention_modules(model).items() if kinds[index] == kind]


def sliding_layers(model: Any) -> list[Any]:
    return layers_of_kind(model, SLIDING)


def one_full_layer(model: Any) -> list[Any]:
    """The last full attention module with keys of its own."""
    return [one for one in layers_of_kind(model, FULL) if compat.has_own_keys(one)][-1:]


# --- where not -------------------------------------------------------------------------------------------------------


def no_cells(patient: Patient) -> str:
    """Reason why a patient cannot have a fault of single cells of a mask."""
    return "" if patient.backend in ("eager", "sdpa") else f"{patient.backend} takes no mask with cells"


def no_sliding_cells(patient: Patient) -> str:
    return no_window(patient) or no_cells(patient)


def one_kind(patient: Patient) -> str:
    """Reason why a patient cannot have a fault that takes sliding and full layers."""
    kinds = set(compat.layer_kinds(compat.text_config(patient.model)))
    return no_cells(patient) if {SLIDING, FULL} <= kinds else "all layers are of one kind"


# --- the change ------------------------------------------------------------------------------------------------------


@contextmanager
def mask_cells_edited(
    patient: Patient, edit: Edit, layers: Callable[[Any], Sequence[Any]] = one_layer, given_only: bool = False
) -> Iterator[None]:
    """Let some layers of every model read other keys.

    Args:
        patient: whose models are changed.
        edit: what may be read instead, shape (b, 1, q, k).
        layers: from a model to attention modules. One that uses another's keys must come with that one.
        given_only: only masks that the library passes; else one is handed over as well where it passes none.
    """
    with ExitStack() as hooks:
        for model in patient.models:
            watched = _Watched()
            hooks.enter_context(hooked([text_decoder(model)], watched.begin))
            hooks.enter_context(hooked(layers(model), _editing(watched, edit, given_only)))
        yield


@contextmanager
def mask_tensors_replaced(patient: Patient, change: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Let every attention module receive another tensor for each 4-D mask that the library hands over."""

    def swap(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        mask = kwargs.get("attention_mask")
        if isinstance(mask, torch.Tensor) and mask.dim() == 4:
            kwargs["attention_mask"] = change(mask)
        return args, kwargs

    with hooked(attention_of(patient), swap):
        yield


def additive(cells: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """0 where a key may be read, the lowest number where not."""
    return torch.zeros(cells.shape, dtype=dtype, device=cells.device).masked_fill_(~cells, torch.finfo(dtype).min)


def _editing(watched: _Watched, edit: Edit, given_only: bool) -> Callable[..., Any]:
    def change(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
        mask = kwargs.get("attention_mask")
        before = watched.mask(module, args, kwargs)
        if mask is None and given_only:
            return args, kwargs
        after = edit(before)
        if not torch.equal(after, before.readable):
            # as a kernel takes it: additive where the library's own is
            kwargs["attention_mask"] = (
                after if mask is None or mask.dtype is torch.bool else additive(after, mask.dtype)
            )
        return args, kwargs

    return change


@dataclass
class _Watched:
    """What is known of the forward of a model that runs.

    Attributes:
        fed: what it is fed.
        handed: how many keys the last layer of each kind is handed that has its own.
    """

    fed: Fed | None = None
    handed: dict[str, int] = field(default_factory=dict)

    def begin(self, decoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.fed = Fed.of(decoder, args, kwargs)
        self.handed.clear()

    def mask(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LayerMask:
        fed = self.fed
        assert fed is not None  # the decoder's hook comes before those of its layers
        config = compat.text_config(fed.decoder)
        kind = compat.layer_kinds(config)[module.layer_idx]
        model_window = compat.window(config) or 0
        window = model_window if kind == SLIDING else 0
        mask = kwargs.get("attention_mask")
        hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        if compat.has_own_keys(module):
            self.handed[kind] = _handed(handed_cache(args, kwargs), module.layer_idx, window, fed.columns)
        total, (rows, queries) = fed.start + fed.columns, hidden.shape[:2]
        width = self.handed[kind] if mask is None else mask.shape[-1]
        made = LayerMask(
            readable=torch.empty(0) if mask is None else readable(mask),
            queries=torch.arange(total - queries, total, device=hidden.device)[:, None],
            keys=torch.arange(width, device=hidden.device) + max(0, total - width),
            window=window,
            model_window=model_window,
            padding=hidden.new_ones((rows, total), dtype=torch.bool) if fed.padding is None else fed.padding,
            is_decode_step=fed.is_decode_step,
            backend=compat.attention_backend(fed.decoder),
        )
        if mask is None:
            return replace(made, readable=made.unpadded.expand(rows, 1, queries, width))
        return made if fed.padding is not None else replace(made, padding=_guessed(made))


def _guessed(mask: LayerMask) -> torch.Tensor:
    """Padding, where only the mask itself tells: real tokens see themselves; older ones are taken for real."""
    padding, fed = mask.padding.clone(), len(mask.queries)
    own = mask.readable[:, 0].diagonal(mask.total - fed - int(mask.keys[0]), dim1=-2, dim2=-1)
    if own.shape[-1] == fed:  # else the mask does not reach them all
        padding[:, -fed:] = own
    return padding


def _handed(cache: Any, layer: int, window: int, fed: int) -> int:
    """How many keys a cache's layer will hand over."""
    layers = () if cache is None else compat.cache_layers(cache)
    held = next((one for one in layers if one.layer == layer), None)
    if held is None:
        return fed
    if held.static:
        return held.stored
    # what is kept for a rollback alone is not handed over
    return fed + (min(held.stored, window - 1) if held.recording else held.stored)
