"""Watches a model while it runs: hooks in, events out, everything removed again whatever happens.

What is recorded is what the attention kernel receives. Module hooks see the cache, the rotation and the position ids;
the kernel's own arguments are seen by wrapping the attention function in place (see `compat`).
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from gemma_doctor import compat
from gemma_doctor.capture.hooks import fed_columns, handed_cache, hooked
from gemma_doctor.capture.keys import KeyBook
from gemma_doctor.capture.masks import dtype_name, mask_facts
from gemma_doctor.capture.model_facts import attention_modules, kv_sources, text_decoder
from gemma_doctor.capture.readout import CannotRead, attention_weights, named_arguments, picked_outputs
from gemma_doctor.capture.rotation import Rotation, is_rotation, layer_rotation, rotary_modules, turn
from gemma_doctor.capture.wanted import Wanted
from gemma_doctor.errors import in_one_line, is_ours
from gemma_doctor.evidence import (
    Bools,
    Crash,
    Forward,
    Ints,
    KernelCall,
    LayerRotation,
    MaskFacts,
    Reading,
    frozen,
)


@dataclass
class _Running:
    """The forward that is under way."""

    fed: int
    calls: list[KernelCall] = field(default_factory=list)
    positions: list[Ints] = field(default_factory=list)
    cache: Any = None
    # Layers share mask tensors: each is looked at once. The tensors are held so that no address is used twice.
    masks: dict[tuple[Any, ...], tuple[Any, MaskFacts | None]] = field(default_factory=dict)
    # And cos and sin, with the layers that were handed them: each is looked at once, and held for the same reason.
    rotations: dict[int, tuple[Rotation, list[int]]] = field(default_factory=dict)


@dataclass
class Recorder:
    """Events of one pass.

    Attributes:
        padding: attention mask of the first prompt, shape (b, prompt columns); later columns are real tokens.
        wanted: (columns fed before a forward, columns after it) -> columns of the sequence whose queries are read in
            that forward; there its keys are recognised as well. None: nothing is read, no keys are remembered.
        only: layers that are read; None for all.
        masks: look at masks: that takes as many bits as they have cells.
        forwards: finished forwards, in order.
        rotations: per layer, from the first prefill that holds position 1.
        kv_sources: for layers that reuse another layer's keys: that layer, among whose keys theirs are recognised.
        unreadable: why a call could not be read (a compiler's exception, say), "" if all could.
    """

    padding: Bools
    wanted: Wanted | None = None
    only: frozenset[int] | None = None
    masks: bool = True
    forwards: list[Forward] = field(default_factory=list)
    rotations: dict[int, LayerRotation] = field(default_factory=dict)
    kv_sources: Mapping[int, int] = field(default_factory=dict)
    unreadable: str = ""
    layer: int | None = None
    total: int = 0
    _running: _Running | None = None
    _began: int = 0
    _book: KeyBook = field(default_factory=KeyBook)
    _caches: list[Any] = field(default_factory=list)
    _attached: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def start(self) -> int:
        """Columns that stand before the forward under way: without a cache it computes the whole text again."""
        return self.total if self._running is not None and self._running.cache is not None else 0

    def begin(self) -> None:
        """What comes now is a new request: until a forward of it has begun, the library may refuse it."""
        self._began = len(self.forwards)

    def detach(self) -> None:
        """Take off what was put on caches while the model ran."""
        self._attached.close()
        self._caches.clear()

    def crash(self, error: BaseException) -> Crash:
        """Where an exception out of the subject struck."""
        fed = self._running.fed if self._running else 0
        return Crash(
            kind=type(error).__name__,
            message=in_one_line(error),
            step=len(self.forwards),
            total=self.start + fed if self._running else self.total,
            layer=self.layer,
            refused=self._running is None and len(self.forwards) == self._began and says_no(error),
            call=self._running.calls[-1] if self._running and self._running.calls else None,
        )

    # --- events ------------------------------------------------------------------------------------------------------

    def start_forward(self, _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._running = _Running(fed_columns(args, kwargs))
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
        cache = handed_cache(args, kwargs)
        if running.cache is None and cache is not None:
            running.cache = cache
            self._watch(cache)
        rotation = next((value for value in (*kwargs.values(), *args) if is_rotation(value)), None)
        if rotation is not None and running.positions:
            running.rotations.setdefault(id(rotation[0]), (rotation, []))[1].append(self.layer)
            if self.layer not in self.rotations and not self.forwards:
                self._see_rotation(module, rotation)

    def _watch(self, cache: Any) -> None:
        if self.wanted is not None and not any(one is cache for one in self._caches):
            self._caches.append(cache)
            self._attached.enter_context(compat.updates_watched(cache, self._see_update))

    def _see_update(self, layer: int, keys: torch.Tensor) -> None:
        if self.only is None or layer in self.only:
            self._book.store(layer, keys, self.start)

    def _see_rotation(self, module: Any, rotation: Rotation) -> None:
        assert self._running is not None and self.layer is not None
        # Gemma 4's layers with shared keys compute the last queries of a prefill only (5.24): count from the end.
        queries = rotation[0].shape[1]
        columns = np.flatnonzero(self._running.positions[0][0, -queries:] == 1)
        if columns.size:
            cos, sin = (part[0, int(columns[0])].detach() for part in rotation)
            self.rotations[self.layer] = layer_rotation(module, cos, sin)

    def watch_kernel(self, name: str, own: set[int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A wrapper for the attention function `name` that records calls from the modules with ids in `own`."""

        def wrap(kernel: Callable[..., Any]) -> Callable[..., Any]:
            def watched(*args: Any, **kwargs: Any) -> Any:
                named = named_arguments(args, kwargs)
                if self._running is None or id(named.get("module")) not in own:
                    return kernel(*args, **kwargs)
                call = self._call(name, **named)
                self._running.calls.append(call)  # before it runs: a crash is told by its last call
                output = kernel(*args, **kwargs)
                self._running.calls[-1] = self._read(call, output, kernel, args, kwargs)
                return output

            return watched

        return wrap

    def _call(
        self, name: str, module: Any, query: Any, key: Any, attention_mask: Any = None, **others: Any
    ) -> KernelCall:
        causal = others.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        return KernelCall(
            layer=int(module.layer_idx),
            kernel=name,
            query_shape=tuple(query.shape),
            key_shape=tuple(key.shape),
            query_dtype=dtype_name(query.dtype),
            mask=self._facts(attention_mask) if self.masks else None,
            # without a mask the eager function reads every key; the others are told to be causal
            causal_when_none=bool(causal) and name != "eager" and query.shape[2] > 1,
            window_argument=others.get("sliding_window"),
        )

    def _read(self, call: KernelCall, output: Any, kernel: Callable[..., Any], args: Any, kwargs: Any) -> KernelCall:
        """The call with what was asked to be read in it."""
        assert self._running is not None
        if self.wanted is None or (self.only is not None and call.layer not in self.only):
            return call
        total, queries, keys = self.start + self._running.fed, call.query_shape[2], call.key_shape[2]
        columns = [one for one in self.wanted(self.start, total) if total - queries <= one < total]
        if not columns:
            return call
        rows = [one - (total - queries) for one in columns]
        try:
            weights, outputs = attention_weights(kernel, args, kwargs, rows), picked_outputs(output[0], rows)
        except Exception as error:  # the subject itself has just run: this is a limit of the readout
            if is_ours(error) and not isinstance(error, CannotRead):
                raise
            self.unreadable = f"{call.kernel}: {type(error).__name__}: {in_one_line(error)}"
            return call
        stored_by = self.kv_sources.get(call.layer, call.layer)
        return replace(
            call,
            key_positions=self._book.recognise(stored_by, named_arguments(args, kwargs)["key"], max(0, total - keys)),
            reading=Reading(frozen(np.array(columns, dtype=np.int64)), weights, outputs),
        )

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
        running, start = self._running, self.start
        self._running = self.layer = None
        if running is None:
            return
        rows = self.padding.shape[0]
        self.forwards.append(
            Forward(
                start=start,
                fed=running.fed,
                real=frozen(self._real(start, running.fed)),
                positions=_broadcast(running.positions, rows),
                positions_agree=all(np.array_equal(one, running.positions[0]) for one in running.positions),
                calls=tuple(running.calls),
                cache=compat.cache_layers(running.cache) if running.cache is not None else (),
                turns=tuple(
                    turn(rotation, layers, int(running.positions[0][0, -1]))
                    for rotation, layers in running.rotations.values()
                ),
            )
        )
        self.total = start + running.fed

    def _real(self, start: int, fed: int) -> Bools:
        known = self.padding[:, start : start + fed]
        later = np.ones((self.padding.shape[0], fed - known.shape[1]), dtype=bool)
        return np.concatenate([known, later], axis=1)


def says_no(error: BaseException) -> bool:
    """It was raised on purpose, to say what is not offered; not by an expression that did not expect its values."""
    if not isinstance(error, (ValueError, TypeError, NotImplementedError)) or error.__traceback__ is None:
        return False
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return (frame.line or "").startswith("raise")


def _broadcast(positions: list[Ints], rows: int) -> Ints | None:
    if not positions:
        return None
    ids = positions[0]
    return frozen(np.broadcast_to(ids, (rows, ids.shape[1])) if ids.shape[0] == 1 else ids)


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
    recorder.kv_sources = kv_sources(model)
    with contextlib.ExitStack() as stack:
        for name in sorted({type(module).__module__ for module in attention.values()}):
            stack.enter_context(compat.attention_function_wrapped(name, backend, recorder.watch_kernel(backend, own)))
        stack.enter_context(hooked([decoder], recorder.start_forward))
        stack.enter_context(hooked(attention.values(), recorder.enter_layer))
        stack.enter_context(hooked(rotary_modules(decoder), recorder.see_positions))
        stack.callback(decoder.register_forward_hook(recorder.finish_forward, with_kwargs=True).remove)
        stack.callback(recorder.detach)
        yield
