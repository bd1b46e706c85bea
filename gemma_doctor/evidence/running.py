"""The running model: forwards, what the attention kernel received in them, and what came out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gemma_doctor.evidence.arrays import EMPTY_SLOT, SLIDING, Bools, Floats, Ints
from gemma_doctor.evidence.calls import KernelCall

LONG_GENERATE = "long generate"  # name of the pass that generates across the edge


@dataclass(frozen=True)
class CacheLayer:
    """One layer of the KV cache after a forward.

    Attributes:
        layer: index.
        seen: cumulative length, what the cache says it has seen; None if it has no notion of it.
        stored: length of the key axis it holds.
        sliding: the layer drops old keys.
        static: it has a fixed number of slots.
        recording: it keeps dropped keys for a while on purpose, so that a draft can be rolled back.
        bytes: of the keys and values that it holds, the whole batch.
        allocated: of the storage behind them, which is more where they are a view of something larger.
    """

    layer: int
    seen: int | None
    stored: int
    sliding: bool
    static: bool
    recording: bool = False
    bytes: int = 0
    allocated: int = 0


@dataclass(frozen=True)
class Turn:
    """How far the queries and keys of one token were turned: the last column of a forward's first row.

    Attributes:
        layers: that were handed this cos and sin.
        position: id that the rotary embedding received for the token.
        angles: radians, each up to full turns, shape (rotary_dim / 2,).
        dtype: of cos and sin.
    """

    layers: tuple[int, ...]
    position: int
    angles: Floats
    dtype: str


@dataclass(frozen=True)
class Forward:
    """One forward of the text decoder: a prefill, a chunk, or a decode step.

    Attributes:
        start: columns (tokens and pads) fed before this forward.
        fed: columns fed now.
        real: True for real tokens, False for pads, shape (b, fed).
        positions: position ids as the rotary embedding received them, shape (b, fed), broadcast over the batch;
            None if none were seen.
        positions_agree: all rotary modules received the same ids.
        calls: one per attention layer, in order of execution.
        cache: the cache after this forward, own layers only; empty when there is none.
        turns: one for each cos and sin that was handed to layers.
    """

    start: int
    fed: int
    real: Bools
    positions: Ints | None
    positions_agree: bool
    calls: tuple[KernelCall, ...]
    cache: tuple[CacheLayer, ...]
    turns: tuple[Turn, ...] = ()

    @property
    def total(self) -> int:
        """Columns fed up to and including this forward."""
        return self.start + self.fed

    @property
    def is_decode_step(self) -> bool:
        return self.fed == 1 and self.start > 0

    def first_key(self, call: KernelCall) -> int:
        """Column of the sequence that a call's key column 0 should hold; key column c should hold the c-th after it.

        Right for dynamic and static caches, before and after they roll. Static caches have empty columns at the end.
        """
        return max(0, self.total - call.key_shape[2])

    def key_columns(self, call: KernelCall) -> tuple[Ints, Bools]:
        """What each key column of a call stands for, and whether it holds nothing; shape (b, k) each.

        That is the token that it was recognised as; where it was not, the one that it should hold.
        """
        columns: Ints = np.tile(np.arange(call.key_shape[2]) + self.first_key(call), (call.key_shape[0], 1))
        empty = columns >= self.total
        held = call.key_positions
        if held is None:
            return columns, empty
        return np.where(held >= 0, held, columns), empty | (held == EMPTY_SLOT)

    def first_query(self, call: KernelCall) -> int:
        """Column of the sequence that a call's first query stands for."""
        return self.total - call.query_shape[2]

    def may_read(self, call: KernelCall) -> Bools | None:
        """What each query may read of the keys handed over, by the mask or, without one, by the kernel's own rule.

        Shape (b or 1, heads or 1, q, k). None if that cannot be said: a mask that has no cells or does not fit.
        """
        queries, keys = call.query_shape[2], call.key_shape[2]
        if call.mask is None:
            return call.unmasked(np.arange(queries))[None, None]
        if call.mask.form != "dense" or call.mask.shape[2] != queries or call.mask.shape[3] < keys:
            return None
        return call.mask.readable()[..., :keys]

    def reach(self, call: KernelCall) -> int | None:
        """Columns from a query back to the first key it may read, itself included: the widest of one call.

        None if that cannot be said.
        """
        first_token = self.first_key(call)
        if call.mask is not None and call.mask.first is not None:
            first = call.mask.first
            if first.shape[-1] != call.query_shape[2] or not (first >= 0).any():
                return None
            queries = np.arange(self.first_query(call), self.total)
            return int((queries - first - first_token + 1)[first >= 0].max())
        if call.mask is not None and call.mask.form != "padding":
            return None
        reach = self.total - first_token
        by_kernel = call.window_argument if call.kernel.startswith("flash") else None
        return min(reach, by_kernel) if by_kernel else reach


@dataclass(frozen=True)
class Crash:
    """An exception out of the subject: its forward, or the library's code around it.

    Attributes:
        kind, message: type and first line.
        step: forward in which it happened, 0 = prefill.
        total: columns fed up to and including that forward.
        layer: last attention layer entered in that forward, None if none was.
        refused: the library said no, in so many words, before any forward began.
        call: the last call of the attention function in that forward, None if there was none.
    """

    kind: str
    message: str
    step: int
    total: int
    layer: int | None
    refused: bool = False
    call: KernelCall | None = None


@dataclass(frozen=True)
class LayerRotation:
    """The rotation that one layer's queries and keys received at position 1.

    Attributes:
        layer: index.
        frequencies: angle at position 1 = inverse frequency, radians, shape (rotary_dim / 2,).
        scaling: length of the (cos, sin) vector: the attention factor of yarn and longrope, else 1.
        dtype: of cos and sin.
        distortion: largest relative change of a unit vector's length where the layer applies this cos and sin, beyond
            `scaling`; a rotation has none. None if the layer's way to apply them is not known.
    """

    layer: int
    frequencies: Floats
    scaling: float
    dtype: str
    distortion: float | None = None


@dataclass(frozen=True)
class Pass:
    """One thing that was run with the recorder on.

    Attributes:
        name: unique, e.g. "long generate", "prompt W-1", "second turn", "padded batch", "true window".
        window: W in force in this pass (W' on a skeleton), None if the model has none.
        prompt_length: columns of the first prompt.
        padded: some rows hold pads.
        forwards: in order.
        crash: the exception that ended it, else None.
        same_tokens_as: name of a pass over whose tokens, prompt and generated ones, this one is a single forward.
    """

    name: str
    window: int | None
    prompt_length: int
    padded: bool
    forwards: tuple[Forward, ...]
    crash: Crash | None = None
    same_tokens_as: str = ""

    def steps(self) -> Iterator[tuple[int, Forward, Bools]]:
        """Every forward, with its step (0 = prefill) and which columns up to its end are real, shape (b, total)."""
        real = None
        for step, forward in enumerate(self.forwards):
            before = forward.real[:, :0] if real is None else real[:, : forward.start]
            real = np.concatenate([before, forward.real], axis=1)
            yield step, forward, real

    def place(self, step: int, total: int) -> str:
        """A forward of this pass in words: "pass 'long generate', step 8, total length 512 (= W)"."""
        edge = ""
        if self.window is not None:
            edge = f" (W{total - self.window:+d})" if total != self.window else " (= W)"
        return f"pass {self.name!r}, step {step}, total length {total}{edge}"


@dataclass(frozen=True)
class Trace:
    """All recorded passes.

    Attributes:
        passes: in the order in which they ran.
        rotations: of the first recorded prefill.
        device: where it ran ("cpu", "cuda:0").
        layer_kinds: kind of every layer of the model that ran.
        shares_kv_with: for layers that reuse another layer's keys: that layer.
        causal: False for bidirectional models.
        unreadable: why some calls that should have been read could not be, "" if all could.
        quantised: some modules of the model round what they compute, however it is stored afterwards.
    """

    passes: tuple[Pass, ...]
    rotations: tuple[LayerRotation, ...]
    device: str
    layer_kinds: Mapping[int, str]
    shares_kv_with: Mapping[int, int]
    causal: bool
    unreadable: str = ""
    quantised: bool = False

    def window(self, one: Pass, layer: int) -> int | None:
        """W in force in one layer of a pass, None where it reads everything before it."""
        return one.window if self.layer_kinds.get(layer) == SLIDING else None

    def steps(self) -> Iterator[tuple[Pass, int, Forward, Bools]]:
        """Every forward with its pass, its step, and which columns up to its end are real, shape (b, total)."""
        for one in self.passes:
            for step, forward, real in one.steps():
                yield one, step, forward, real

    def forwards(self) -> Iterator[tuple[Pass, int, Forward]]:
        """Every forward with its pass and its step (0 = prefill)."""
        for one in self.passes:
            for step, forward in enumerate(one.forwards):
                yield one, step, forward

    def calls(self) -> Iterator[tuple[Pass, int, Forward, KernelCall]]:
        for one, step, forward in self.forwards():
            for call in forward.calls:
                yield one, step, forward, call

    def attempted_calls(self) -> Iterator[tuple[Pass, int, int, KernelCall, bool]]:
        """Every call with its pass, its step, the columns fed up to its end, and whether the forward ended in it.

        Those of finished forwards come first.
        """
        for one, step, forward, call in self.calls():
            yield one, step, forward.total, call, False
        for one in self.passes:
            if one.crash and one.crash.call:
                yield one, one.crash.step, one.crash.total, one.crash.call, True


@dataclass(frozen=True)
class PaddedBatch:
    """Rows of unequal length run together, against each row run alone.

    Attributes:
        pass_name: the pass of `Trace` in which they ran, padded on the left.
        side: "left" or "right", as the subject pads; on the right the rows ran once more, so padded.
        side_from: who decided: "tokenizer" or "this tool (no tokenizer)".
        real: attention mask of the prompt, shape (rows, columns).
        deviation: largest difference of the next-token logits, row in batch against row alone, shape (rows,).
        flips: the top token differs and the gap of the two tokens exceeds 2 floors, shape (rows,).
        floor: noise floor, in logits.
        positions: of the recorded prompt's columns, shape (rows, columns); None if no rotary module received any.
        positions_of: which of those columns are real, shape (rows, columns).
        side_before, side_after: the tokenizer's setting before anything ran, and after generate(); None without one.
    """

    pass_name: str
    side: str
    side_from: str
    real: Bools
    deviation: Floats
    flips: Bools
    floor: float
    positions: Ints | None = None
    positions_of: Bools | None = None
    side_before: str | None = None
    side_after: str | None = None
