"""What was observed: frozen, read-only, made once and shared by all checks. No torch here.

A check names the evidence it needs by parameter type: `Config`, `ModelFacts`, `TokenizerFacts`, `Trace`,
`PaddedBatch`, `Generation`. Arrays are numpy copies with the write flag off; where a torch dtype matters its name is
kept beside the array (bfloat16 is stored as float32).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gemma_doctor.finding import Severity

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

SLIDING = "sliding_attention"
FULL = "full_attention"

# Instead of the position of a key's token:
UNRECOGNISED = -1  # its vector is near none of the reference route's
EMPTY_SLOT = -2  # nothing was ever written there


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy of `array` that cannot be written to."""
    copy = np.array(array, copy=True)
    copy.flags.writeable = False
    return copy


# --- configuration ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """A value and the key under which it was written, e.g. ("text_config.sliding_window", 512)."""

    key: str
    value: Any


@dataclass(frozen=True)
class RopeClaim:
    """Rotary parameters as written for one layer kind.

    Attributes:
        key: where they were written, e.g. "rope_parameters.sliding_attention" or "rope_theta".
        theta: base wavelength, None when the text names none.
        rope_type: "default", "linear", "dynamic", "yarn", "llama3", "longrope", "proportional"; "" when the text
            names none (a class default decides).
        parameters: everything else that was written (factor, partial_rotary_factor, original_max_position_embeddings,
            low_freq_factor, beta_fast, attention_factor, truncate, mscale ...), numbers, strings and lists.
    """

    key: str
    theta: float | None
    rope_type: str = "default"
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """ "theta 1,000,000, linear (factor 8.0)"."""
        scaling = f", {self.rope_type}" if self.rope_type not in ("", "default") else ""
        terms = [f"{key} {value}" for key, value in self.parameters.items() if isinstance(value, (int, float, str))]
        return f"theta {theta_in_words(self.theta)}{scaling}" + (f" ({', '.join(terms)})" if terms else "")


def theta_in_words(theta: float | None) -> str:
    return "not named" if theta is None else f"{theta:,.6g}" if theta % 1 else f"{theta:,.0f}"


@dataclass(frozen=True)
class ConfigFacts:
    """One spelling of a text decoder's configuration (the published file, or the loaded object), read the same way.

    A field is None when that spelling says nothing: class defaults are filled in only by the loading library.

    Attributes:
        origin: who says so, for messages: "published config.json", "loaded config", "preset gemma-3-270m".
        family: model_type of the text decoder.
        window: the sliding window W, in tokens, the query included; Claim with value None if written as null.
        window_switch: a key that turns the window on or off (`use_sliding_window`), if written.
        layer_kinds: kind of every layer as written or as the written pattern implies, else None.
        pattern: the key that decided `layer_kinds`.
        rope: by layer kind; the key "" stands for "every layer" (flat spelling).
        eps: epsilon of the norms.
        head_dim, global_head_dim: size of one head on sliding (or all) and on full layers.
        raw: the text decoder's own mapping, as it was.
    """

    origin: str
    family: str
    window: Claim | None
    window_switch: Claim | None
    layer_kinds: tuple[str, ...] | None
    pattern: Claim | None
    rope: Mapping[str, RopeClaim]
    eps: Claim | None
    layers: int | None
    hidden_size: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    global_head_dim: int | None
    max_positions: int | None
    causal: bool
    raw: Mapping[str, Any]

    @property
    def switched_off(self) -> str:
        """What turns the window off, as "use_sliding_window=false"; "" if nothing does."""
        switch = self.window_switch
        return f"{switch.key}=false" if switch is not None and switch.value is False else ""

    @property
    def window_in_force(self) -> Any:
        """The window that this spelling asks for: None if it names none, writes null, or switches it off."""
        return None if self.window is None or self.switched_off else self.window.value


@dataclass(frozen=True)
class Expectation:
    """A configuration to hold the subject against.

    Attributes:
        facts: the expected spelling; None-valued fields expect nothing.
        binding: True for `expect:` in the run file (a mismatch is an error); False for the preset of the same shape
            (a mismatch is a warning: a fine-tune may differ on purpose).
    """

    facts: ConfigFacts
    binding: bool

    @property
    def severity(self) -> Severity:
        """Of a mismatch."""
        return Severity.ERROR if self.binding else Severity.WARNING


@dataclass(frozen=True)
class Config:
    """The subject's configuration as published, and what it is expected to be (evidence of `check --static`)."""

    published: ConfigFacts
    expectations: tuple[Expectation, ...] = ()


# --- the model as it stands ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerFacts:
    """One decoder layer of the examined model.

    Attributes:
        index: of the layer (`layer_idx` of its attention module).
        kind: as the model's own config names it.
        window_attributes: window-like attributes that the attention module itself carries (`sliding_window`, ...),
            None values included; empty when it carries none (some families pass the window at call time).
        head_dim, query_heads, kv_heads: sizes seen in the module.
        shares_kv_with: layer whose keys and values this one reuses, else None.
    """

    index: int
    kind: str
    window_attributes: Mapping[str, int | None]
    head_dim: int
    query_heads: int
    kv_heads: int
    shares_kv_with: int | None = None


@dataclass(frozen=True)
class NormFacts:
    """One normalisation module.

    Attributes:
        name: dotted module name.
        attribute: the epsilon that the module stores, None if it stores none under a known name.
        measured: the epsilon that acts: from the outputs for two inputs of alternating sign, one of RMS near
            sqrt(expected eps) and one large; None where it could not be measured.
        dtype: name of the dtype in which it was fed ("float32", "bfloat16").
        tolerance: relative error of `measured` that the dtype's rounding explains.
    """

    name: str
    attribute: float | None
    measured: float | None
    dtype: str
    tolerance: float


@dataclass(frozen=True)
class RotaryBuffer:
    """Inverse frequencies that live in a rotary module, radians per position, shape (rotary_dim / 2,).

    `kind` is the layer kind it serves, "" if it serves all.
    """

    name: str
    kind: str
    values: Floats
    dtype: str


@dataclass(frozen=True)
class ModelFacts:
    """The loaded configuration and the modules built from it.

    Attributes:
        loaded: configuration that the running model carries (class defaults filled in).
        layers, norms, rotary: as found in the modules of the text decoder.
        causal: False for bidirectional models.
    """

    loaded: ConfigFacts
    layers: tuple[LayerFacts, ...]
    norms: tuple[NormFacts, ...]
    rotary: tuple[RotaryBuffer, ...]
    causal: bool


@dataclass(frozen=True)
class TokenizerFacts:
    """What the subject's tokenizer is set to do."""

    class_name: str
    padding_side: str
    pad_token_id: int | None
    bos_token_id: int | None
    vocabulary: int


# --- the running model -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MaskFacts:
    """A mask as the kernel received it.

    Attributes:
        form: "dense" (4-D tensor), "padding" (2-D, flash), "block" (flex BlockMask), "other".
        dtype: torch dtype name, "" where it has none.
        shape: as received.
        bits: dense masks: True = may be read, packed along the key axis, shape (b, h, q, ceil(k / 8)); else None.
        first, count: dense masks: first readable column (-1 in an empty row) and number of readable columns per row,
            shape (b, h, q); else None.
        highest: largest value of a numeric mask, None for bool.
        between: how many values are neither 0 nor at or below finfo(dtype).min / 2 (0 for bool).
        nans: how many values are NaN.
    """

    form: str
    dtype: str
    shape: tuple[int, ...]
    bits: Bytes | None = None
    first: Ints | None = None
    count: Ints | None = None
    highest: float | None = None
    between: int = 0
    nans: int = 0

    def readable(self) -> Bools:
        """Unpacked: True where the key may be read, shape (b, h, q, k). Only for dense masks."""
        if self.bits is None:
            raise ValueError(f"a {self.form} mask has no cells")
        return np.unpackbits(self.bits, axis=-1, count=self.shape[-1]).astype(bool)


@dataclass(frozen=True)
class KernelCall:
    """One call of the attention function, as it was made.

    Attributes:
        layer: index.
        kernel: "eager", "sdpa", "flash_attention_2", "flex_attention", ...
        query_shape: (b, heads, q, head_dim). The queries are the last q columns of the forward: all that were fed,
            but where a layer needs its last queries only (Gemma 4's layers with shared keys, since 5.2x).
        key_shape: (b, kv_heads, k, head_dim).
        query_dtype: torch dtype name.
        mask: None when the library passed None (causality is then left to the kernel).
        causal_when_none: what the kernel does without a mask: True = causal, False = reads all keys.
        window_argument: `sliding_window` handed to the function, None if none.
        key_positions: for chosen calls: the absolute token position that each key column was recognised as (matched
            with the reference route's key vectors), UNRECOGNISED or EMPTY_SLOT, shape (b, k); else None.
    """

    layer: int
    kernel: str
    query_shape: tuple[int, int, int, int]
    key_shape: tuple[int, int, int, int]
    query_dtype: str
    mask: MaskFacts | None
    causal_when_none: bool
    window_argument: int | None
    key_positions: Ints | None = None


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
    """

    layer: int
    seen: int | None
    stored: int
    sliding: bool
    static: bool
    recording: bool = False


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
    """

    start: int
    fed: int
    real: Bools
    positions: Ints | None
    positions_agree: bool
    calls: tuple[KernelCall, ...]
    cache: tuple[CacheLayer, ...]

    @property
    def total(self) -> int:
        """Columns fed up to and including this forward."""
        return self.start + self.fed

    @property
    def is_decode_step(self) -> bool:
        return self.fed == 1 and self.start > 0

    def reach(self, call: KernelCall) -> int | None:
        """Columns from a query back to the first key it may read, itself included: the widest of one call.

        None if that cannot be said. Key column c stands for token c + max(0, total - key length), before and after a
        cache rolls.
        """
        first_token = max(0, self.total - call.key_shape[2])
        if call.mask is not None and call.mask.first is not None:
            first = call.mask.first
            if first.shape[-1] != call.query_shape[2] or not (first >= 0).any():
                return None
            queries = np.arange(self.total - call.query_shape[2], self.total)
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
    """

    layer: int
    frequencies: Floats
    scaling: float
    dtype: str


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
    """

    name: str
    window: int | None
    prompt_length: int
    padded: bool
    forwards: tuple[Forward, ...]
    crash: Crash | None = None

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
    """

    passes: tuple[Pass, ...]
    rotations: tuple[LayerRotation, ...]
    device: str
    layer_kinds: Mapping[int, str]
    shares_kv_with: Mapping[int, int]
    causal: bool

    def forwards(self) -> Iterator[tuple[Pass, int, Forward]]:
        """Every forward with its pass and its step (0 = prefill)."""
        for one in self.passes:
            for step, forward in enumerate(one.forwards):
                yield one, step, forward

    def calls(self) -> Iterator[tuple[Pass, int, Forward, KernelCall]]:
        for one, step, forward in self.forwards():
            for call in forward.calls:
                yield one, step, forward, call


@dataclass(frozen=True)
class PaddedBatch:
    """Rows of unequal length run together, against each row run alone.

    Attributes:
        pass_name: the pass of `Trace` in which they ran.
        side: "left" or "right", as the batch was really padded.
        side_from: who decided: "tokenizer" or "this tool (no tokenizer)".
        real: attention mask of the prompt, shape (rows, columns).
        deviation: largest difference of the next-token logits, row in batch against row alone, shape (rows,).
        flips: the top token differs and the gap of the two tokens exceeds 2 floors, shape (rows,).
        floor: noise floor, in logits.
    """

    pass_name: str
    side: str
    side_from: str
    real: Bools
    deviation: Floats
    flips: Bools
    floor: float


@dataclass(frozen=True)
class Generation:
    """One long greedy generation.

    Attributes:
        window: W in force, None if the model has none.
        prompt_length: tokens of the prompt.
        margin: new tokens wanted after the edge.
        tokens: generated ids, shape (generated,).
        reference: the reference route's top token at the same positions (teacher-forced), shape (generated,).
        clear: where the reference's gap between the two tokens exceeds 2 floors, shape (generated,).
        crash: exception, if one ended it.
        pass_name: its pass in `Trace`.
        not_finite: first step whose logits held NaN or infinity, None if none did.
        no_reference: why the reference route could not be run, "" if it was.
    """

    window: int | None
    prompt_length: int
    margin: int
    tokens: Ints
    reference: Ints
    clear: Bools
    crash: Crash | None
    pass_name: str
    not_finite: int | None = None
    no_reference: str = ""
