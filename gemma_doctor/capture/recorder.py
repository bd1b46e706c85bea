"""Watches a model while it runs: hooks in, events out, everything removed again whatever happens.

What is recorded is what the attention kernel receives. Module hooks see the cache, the rotation and the position ids;
the kernel's own arguments are seen by wrapping the attention function in place (see `compat`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from gemma_doctor import compat
from gemma_doctor.capture.hooks import hooked
from gemma_doctor.capture.masks import dtype_name, mask_facts
from gemma_doctor.capture.model_facts import attention_modules, text_decoder
from gemma_doctor.errors import in_one_line
from gemma_doctor.evidence import Bools, Crash, Floats, Forward, Ints, KernelCall, LayerRotation, MaskFacts, frozen

# of every attention function, in order
KERNEL_ARGUMENTS = ("module", "query", "key", "value", "attention_mask")


@dataclass
class _Running:
    """The forward that is under way."""

    fed: int
    calls: list[KernelCall] = field(default_factory=list)
    positions: list[Ints] = field(default_factory=list)
    cache: Any = None
    # Layers share mask tensors: each is looked at once. The tensors are held so that no address is used twice.
    masks: dict[tuple[Any, ...], tuple[Any, MaskFacts | None]] = field(default_factory=dict)


@dataclass
class Recorder:
    """Events of one pass.

    Attributes:
        padding: attention mask of the first prompt, shape (b, prompt columns); later columns are real tokens.
        keep_keys: (layer, total columns) -> whether to keep a copy of the keys handed to the kernel.
        forwards: finished forwards, in order.
        rotations: per layer, from the first prefill that holds position 1.
        keys: (forward, layer) -> key states of the batch's first row, shape (k, kv_heads * head_dim), where kept.
    """

    padding: Bools
    keep_keys: Callable[[int, int], bool] = lambda layer, total: False
    forwards: list[Forward] = field(default_factory=list)
    rotations: dict[int, LayerRotation] = field(default_factory=dict)
    keys: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    layer: int | None = None
    total: int = 0
    _running: _Running | None = None

    def crash(self, error: BaseException) -> Crash:
        """Where an exception out of the subject struck."""
        fed = self._running.fed if self._running else 0
        return Crash(
            kind=type(error).__name__,
            message=in_one_line(error),
            step=len(self.forwards),
            total=self.total + fed,
            layer=self.layer,
            refused=self._running is None and isinstance(error, (ValueError, TypeError, NotImplementedError)),
            call=self._running.calls[-1] if self._running and self._running.calls else None,
        )

    # --- events ------------------------------------------------------------------------------------------------------

    def start_forward(self, _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        fed = next(
            value
            for value in (kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args)
            if isinstance(value, torch.Tensor)
        )
        self._running = _Running(int(fed.shape[1]))
        self.layer = None

    def see_positions(self, _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._running is None:
            return
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Tensor) and value.dim() == 2 and not value.is_floating_point():
                self._running.positions.append(value.detach().cpu().numpy().astype(np.int64))
                return

    def enter_layer(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.layer = int(module.layer_idx)
        running = self._running
        if running is None:
            return
        for value in (*kwargs.values(), *args):
            if running.cache is None and compat.is_cache(value):
                running.cache = value
            if self.layer not in self.rotations and not self.forwards and _is_rotation(value):
                self._see_rotation(value)

    def _see_rotation(self, rotation: tuple[torch.Tensor, torch.Tensor]) -> None:
        assert self._running is not None and self.layer is not None
        if not self._running.positions:
            return
        # Gemma 4's layers with shared keys compute the last queries of a prefill only (5.24): count from the end.
        queries = rotation[0].shape[1]
        columns = np.flatnonzero(self._running.positions[0][0, -queries:] == 1)
        if columns.size:
            cos, sin = (part[0, int(columns[0])].detach() for part in rotation)
            self.rotations[self.layer] = _layer_rotation(self.layer, cos, sin)

    def watch_kernel(self, name: str, own: set[int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A wrapper for the attention function `name` that records calls from the modules with ids in `own`."""

        def wrap(kernel: Callable[..., Any]) -> Callable[..., Any]:
            # families hand over the arguments by position or by name
            def watched(*args: Any, **kwargs: Any) -> Any:
                named = {**dict(zip(KERNEL_ARGUMENTS, args, strict=False)), **kwargs}
                if id(named.get("module")) in own and self._running is not None:
                    self._see_call(name, **named)
                return kernel(*args, **kwargs)

            return watched

        return wrap

    def _see_call(
        self, name: str, module: Any, query: Any, key: Any, attention_mask: Any = None, **others: Any
    ) -> None:
        running, layer = self._running, int(module.layer_idx)
        assert running is not None
        causal = others.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        running.calls.append(
            KernelCall(
                layer=layer,
                kernel=name,
                query_shape=tuple(query.shape),
                key_shape=tuple(key.shape),
                query_dtype=dtype_name(query.dtype),
                mask=self._facts(attention_mask),
                # without a mask the eager function reads every key; the others are told to be causal
                causal_when_none=bool(causal) and name != "eager" and query.shape[2] > 1,
                window_argument=others.get("sliding_window"),
            )
        )
        if self.keep_keys(layer, self.total + running.fed):
            self.keys[len(self.forwards), layer] = key[0].detach().transpose(0, 1).flatten(1).clone()

    def _facts(self, mask: Any) -> MaskFacts | None:
        assert self._running is not None
        if isinstance(mask, torch.Tensor):
            handle: tuple[Any, ...] = (mask.data_ptr(), tuple(mask.shape), mask.stride(), mask.dtype)
        else:
            handle = (id(mask),)
        if handle not in self._running.masks:
            self._running.masks[handle] = (mask, mask_facts(mask))
        return self._running.masks[handle][1]

    def finish_forward(self, _module: Any, _args: Any, _kwargs: Any, _output: Any) -> None:
        running, self._running, self.layer = self._running, None, None
        if running is None:
            return
        rows = self.padding.shape[0]
        self.forwards.append(
            Forward(
                start=self.total,
                fed=running.fed,
                real=frozen(self._real(running.fed)),
                positions=_broadcast(running.positions, rows),
                positions_agree=all(np.array_equal(one, running.positions[0]) for one in running.positions),
                calls=tuple(running.calls),
                cache=compat.cache_layers(running.cache) if running.cache is not None else (),
            )
        )
        self.total += running.fed

    def _real(self, fed: int) -> Bools:
        known = self.padding[:, self.total : self.total + fed]
        later = np.ones((self.padding.shape[0], fed - known.shape[1]), dtype=bool)
        return np.concatenate([known, later], axis=1)


def _broadcast(positions: list[Ints], rows: int) -> Ints | None:
    if not positions:
        return None
    ids = positions[0]
    return frozen(np.broadcast_to(ids, (rows, ids.shape[1])) if ids.shape[0] == 1 else ids)


def _is_rotation(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and all(isinstance(part, torch.Tensor) and part.is_floating_point() and part.dim() == 3 for part in value)
    )


def _layer_rotation(layer: int, cos: torch.Tensor, sin: torch.Tensor) -> LayerRotation:
    """Undo the layout in which a family lays out cos and sin, each of shape (rotary_dim,) or (rotary_dim / 2,)."""
    dtype = dtype_name(cos.dtype)
    c, s = (part.float().cpu().numpy().astype(np.float64) for part in (cos, sin))
    half = len(c) // 2
    if np.array_equal(c[:half], c[half:]) and np.array_equal(s[:half], s[half:]):
        c, s = c[:half], s[:half]
    elif np.array_equal(c[0::2], c[1::2]) and np.array_equal(s[0::2], s[1::2]):
        c, s = c[0::2], s[0::2]
    frequencies: Floats = np.arctan2(s, c)
    return LayerRotation(layer, frozen(frequencies), float(np.hypot(c, s).mean()), dtype)


@contextlib.contextmanager
def recording(model: Any, recorder: Recorder) -> Iterator[None]:
    """Attach `recorder` to `model` for the duration of the block.

    Raises:
        compat.CannotWatch: the model's attention function cannot be watched.
    """
    decoder = text_decoder(model)
    attention = attention_modules(model)
    own = {id(module) for module in attention.values()}
    backend = compat.attention_backend(model)
    with contextlib.ExitStack() as stack:
        for name in sorted({type(module).__module__ for module in attention.values()}):
            stack.enter_context(compat.attention_function_wrapped(name, backend, recorder.watch_kernel(backend, own)))
        rotary = [module for module in decoder.modules() if "Rotary" in type(module).__name__]
        stack.enter_context(hooked([decoder], recorder.start_forward))
        stack.enter_context(hooked(attention.values(), recorder.enter_layer))
        stack.enter_context(hooked(rotary, recorder.see_positions))
        stack.callback(decoder.register_forward_hook(recorder.finish_forward, with_kwargs=True).remove)
        yield
