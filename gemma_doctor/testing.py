"""For authors of checks: evidence made by hand, and `run_check`. No torch, so a check's test takes milliseconds.

Every builder returns something healthy; a test then breaks one thing with `dataclasses.replace` and the check must
see it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gemma_doctor import plugins, registry
from gemma_doctor.check import judge, needs_of
from gemma_doctor.errors import DoctorError, suggest
from gemma_doctor.evidence import (
    FULL,
    LOGITS,
    LONG_GENERATE,
    LONG_TEXT,
    SLIDING,
    CacheLayer,
    Claim,
    Config,
    ConfigDrift,
    ConfigFacts,
    Expectation,
    Fact,
    Forward,
    Generation,
    KernelCall,
    LayerFacts,
    LayerRotation,
    LongText,
    MaskFacts,
    ModelFacts,
    NormFacts,
    Pass,
    Reading,
    Region,
    RopeClaim,
    RotaryBuffer,
    RotaryRange,
    RouteCase,
    RouteRun,
    Trace,
    Turned,
    frozen,
)
from gemma_doctor.finding import CheckResult
from gemma_doctor.oracle import inverse_frequencies, positions, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gemma_doctor.check import CheckFunction
    from gemma_doctor.evidence import Bools

HEAD_DIM = 8


def run_check(function: CheckFunction, /, **evidence: Any) -> CheckResult:
    """Run one check on evidence made by hand; its exceptions, but for the two that checks speak with, come through.

    Args:
        function: the check.
        evidence: by the check's own parameter names; a parameter left out is None.
    """
    name, group = function.__name__.replace("_", "-"), function.__module__.split(".")[-2]
    needed = (need.parameter for need in needs_of(function))
    return judge(name, group, lambda: function(**{**dict.fromkeys(needed), **evidence}))


def load_check(folder: str | os.PathLike[str], check_id: str) -> CheckFunction:
    """A check of a folder of one's own, imported and validated as --checks-dir does it.

    Args:
        folder: with a folder for each group.
        check_id: as `gemma-doctor list` shows it.

    Raises:
        DoctorError: there is no such check in it, or it cannot be used.
    """
    found = {one.id: one for one in plugins.in_folders([os.fspath(folder)])}
    if check_id not in found:
        raise DoctorError(f"there is no check {check_id!r} in {os.fspath(folder)}{suggest(check_id, found)}")
    return registry.load(found[check_id]).function


def config_facts(
    *,
    origin: str = "published config.json",
    window: int | None = 8,
    kinds: Sequence[str] = (SLIDING, FULL),
    thetas: Sequence[float] = (10_000.0, 1_000_000.0),
    eps: float = 1e-6,
    **changes: Any,
) -> ConfigFacts:
    """A small Gemma 3: window 8, one sliding and one full layer, local theta 10,000, global theta 1,000,000."""
    by_kind = zip((SLIDING, FULL), thetas, strict=True)
    rope = {kind: RopeClaim(f"rope_parameters.{kind}", theta) for kind, theta in by_kind}
    fields: dict[str, Any] = {
        "origin": origin,
        "family": "gemma3_text",
        "window": Claim("sliding_window", window),
        "window_switch": None,
        "layer_kinds": tuple(kinds),
        "pattern": Claim("layer_types", list(kinds)),
        "rope": rope,
        "eps": Claim("rms_norm_eps", eps),
        "layers": len(kinds),
        "hidden_size": 16,
        "heads": 2,
        "kv_heads": 1,
        "head_dim": HEAD_DIM,
        "global_head_dim": None,
        "max_positions": 64,
        "causal": True,
        "raw": {},
    }
    return ConfigFacts(**(fields | changes))


def config(published: ConfigFacts | None = None, expected: ConfigFacts | None = None, binding: bool = True) -> Config:
    """A configuration, with one expectation if `expected` is given."""
    expectations = (Expectation(expected, binding),) if expected else ()
    return Config(published or config_facts(), expectations)


def model_facts(loaded: ConfigFacts | None = None, **changes: Any) -> ModelFacts:
    """The model that a healthy library builds from `loaded`, in float32."""
    loaded = loaded or config_facts(origin="loaded config")
    kinds = loaded.layer_kinds or ()
    window = loaded.window.value if loaded.window else None
    eps = loaded.eps.value if loaded.eps else 1e-6
    fields: dict[str, Any] = {
        "loaded": loaded,
        "layers": tuple(
            LayerFacts(index, kind, {"sliding_window": window if kind == SLIDING else None}, HEAD_DIM, 2, 1)
            for index, kind in enumerate(kinds)
        ),
        "norms": tuple(NormFacts(f"layers.{i}.input_layernorm", eps, eps, "float32", 1e-4) for i in range(len(kinds))),
        "rotary": tuple(
            RotaryBuffer(f"rotary_emb.{kind}_inv_freq", kind, inverse_frequencies(claim, HEAD_DIM, 64)[0], "float32")
            for kind, claim in loaded.rope.items()
        ),
        "causal": loaded.causal,
    }
    return ModelFacts(**(fields | changes))


def config_drift(kinds: Sequence[str] = (SLIDING, FULL), **changes: Any) -> ConfigDrift:
    """Of a whole model: nothing to compare but the kinds of its layers."""
    fields: dict[str, Any] = {
        "arrived": (),
        "unread": (),
        "absent": {},
        "misplaced": (),
        "saved": (),
        "unsaved": "",
        "kinds": tuple(kinds),
        "kept": tuple(range(len(kinds))),
        "head": None,
    }
    return ConfigDrift(**(fields | changes))


def rotary_range(facts: ModelFacts, positions: Sequence[int] = (0, 1, 255, 256, 257, 63_999)) -> RotaryRange:
    """What the healthy rotary modules of `facts` answer, in float64."""
    asked = np.array(positions)
    turned = [
        Turned(one.kind, frozen(asked), frozen(asked[:, None] * one.values[None]), "float32") for one in facts.rotary
    ]
    return RotaryRange(facts.loaded.max_positions, tuple(turned))


def dense_mask(readable: Bools, dtype: str = "bool") -> MaskFacts:
    """What a kernel got as a 4-D mask. `readable` is True where a key may be read, shape (b, h, q, k)."""
    columns = np.arange(readable.shape[-1])
    some = readable.any(axis=-1)
    return MaskFacts(
        form="dense",
        dtype=dtype,
        shape=readable.shape,
        bits=frozen(np.packbits(readable, axis=-1)),
        first=frozen(np.where(some, np.where(readable, columns, columns.size).min(axis=-1), -1)),
        count=frozen(readable.sum(axis=-1)),
        highest=None if dtype == "bool" else 0.0,
    )


def reading(readable: Bools, queries: Sequence[int]) -> Reading:
    """What 2 heads of a healthy kernel read: every key that they may, all alike.

    Args:
        readable: shape (b, q, k).
        queries: columns of the sequence, q of them.
    """
    weights = readable / np.maximum(readable.sum(axis=-1, keepdims=True), 1)
    outputs = np.ones((*readable.shape[:2], 2 * HEAD_DIM), dtype=np.float32)
    by_head = np.stack([weights, weights], axis=1).astype(np.float32)
    return Reading(frozen(np.array(queries)), frozen(by_head), frozen(outputs))


def kernel_call(layer: int, mask: MaskFacts | None, rows: int, fed: int, keys: int, **changes: Any) -> KernelCall:
    """A call of the eager kernel with 2 heads on 1 key head, in float32."""
    fields: dict[str, Any] = {
        "layer": layer,
        "kernel": "eager" if mask else "sdpa",
        "query_shape": (rows, 2, fed, HEAD_DIM),
        "key_shape": (rows, 1, keys, HEAD_DIM),
        "query_dtype": "float32",
        "mask": mask,
        "causal_when_none": mask is None,
        "window_argument": None,
    }
    return KernelCall(**(fields | changes))


def forward(real: Bools, start: int, kinds: Sequence[str], window: int | None) -> Forward:
    """A healthy forward over the columns from `start` on, with a dynamic cache; all queries of all layers are read.

    Args:
        real: True for real tokens, False for pads; all columns up to the end of this forward, shape (b, total).
        start: columns that were fed before.
        kinds: of the layers.
        window: W.
    """
    rows, total = real.shape
    fed, calls, cache = total - start, [], []
    for layer, kind in enumerate(kinds):
        keep = window - 1 if window and kind == SLIDING else total
        keys = fed + min(start, keep)
        rule = visible(window if kind == SLIDING else None, real)
        readable = rule(np.arange(start, total)[:, None], np.arange(total - keys, total)[None, :])
        mask, read = dense_mask(readable[:, None], "float32"), reading(readable, range(start, total))
        calls.append(kernel_call(layer, mask, rows, fed, keys, reading=read))
        cache.append(CacheLayer(layer, total, min(total, keep), kind == SLIDING and window is not None, False))
    return Forward(
        start, fed, frozen(real[:, start:]), frozen(positions(real)[:, start:]), True, tuple(calls), tuple(cache)
    )


def one_pass(
    prompt: int | Bools = 5,
    steps: int = 6,
    *,
    name: str = "prompt W-3",
    kinds: Sequence[str] = (SLIDING, FULL),
    window: int | None = 8,
    **changes: Any,
) -> Pass:
    """A healthy generation: one prefill and `steps` decode steps.

    `prompt` is its length, or an array: True for real tokens and False for pads, shape (b, length).
    """
    real = np.ones((1, prompt), bool) if isinstance(prompt, int) else prompt
    length = real.shape[1]
    whole = np.pad(real, ((0, 0), (0, steps)), constant_values=True)
    forwards = [forward(real, 0, kinds, window)]
    forwards += [forward(whole[:, : at + 1], at, kinds, window) for at in range(length, length + steps)]
    fields: dict[str, Any] = {"padded": not real.all(), "forwards": tuple(forwards)}
    return Pass(**({"name": name, "window": window, "prompt_length": length} | fields | changes))


def trace(*passes: Pass, facts: ConfigFacts | None = None, **changes: Any) -> Trace:
    """A trace of `passes` (one healthy pass if there are none) of the model of `facts`."""
    facts = facts or config_facts()
    kinds = facts.layer_kinds or ()
    fields: dict[str, Any] = {
        "passes": passes or (one_pass(kinds=kinds, window=facts.window.value if facts.window else None),),
        "rotations": tuple(
            LayerRotation(layer, inverse_frequencies(facts.rope[kind], HEAD_DIM, 64)[0], 1.0, "float32")
            for layer, kind in enumerate(kinds)
        ),
        "device": "cpu",
        "layer_kinds": dict(enumerate(kinds)),
        "shares_kv_with": {},
        "causal": True,
    }
    return Trace(**(fields | changes))


def with_forward(one: Pass, step: int, **changes: Any) -> Pass:
    """A pass with another forward."""
    forwards = list(one.forwards)
    forwards[step] = replace(forwards[step], **changes)
    return replace(one, forwards=tuple(forwards))


def with_call(one: Pass, step: int, layer: int, **changes: Any) -> Pass:
    """A pass with another call of one layer (its index among the calls) in one forward."""
    calls = list(one.forwards[step].calls)
    calls[layer] = replace(calls[layer], **changes)
    return with_forward(one, step, calls=tuple(calls))


def with_output(one: Pass, step: int, layer: int, place: Any, output: float) -> Pass:
    """A pass with another output at (sequence, row, entry) of one reading."""
    return _with_number(one, step, layer, "outputs", place, output)


def with_weight(one: Pass, step: int, layer: int, place: Any, weight: float) -> Pass:
    """A pass with another weight at (sequence, head, row, key) of one reading."""
    return _with_number(one, step, layer, "weights", place, weight)


def _with_number(one: Pass, step: int, layer: int, array: str, place: Any, number: float) -> Pass:
    before = one.forwards[step].calls[layer].reading
    assert before is not None
    changed = getattr(before, array).copy()
    changed[place] = number
    return with_call(one, step, layer, reading=replace(before, **{array: frozen(changed)}))


def generation(tokens: Sequence[int], reference: Sequence[int] | None = None, **changes: Any) -> Generation:
    """From 3 tokens below a window of 8 on; the reference route would have put the same, unless it is given."""
    ids = frozen(np.array(tokens))
    fields: dict[str, Any] = {
        "window": 8,
        "prompt_length": 5,
        "margin": 8,
        "tokens": ids,
        "reference": ids if reference is None else frozen(np.array(reference)),
        "clear": frozen(np.ones(len(ids), dtype=bool)),
        "crash": None,
        "pass_name": LONG_GENERATE,
    }
    return Generation(**(fields | changes))


def long_text(**changes: Any) -> LongText:
    """1,536 tokens over a window of 512: tokens cost 3 nats everywhere, facts are recalled with probability 0.9."""
    scores = frozen(np.tile([2.0, 4.0], 32))
    places = (("before the edge", 448), ("after the edge", 704), ("beyond twice the edge", 1024))
    fields: dict[str, Any] = {
        "pass_name": LONG_TEXT,
        "source": "docstrings",
        "length": 1536,
        "window": 512,
        "edge": 512,
        "chunk": 256,
        "regions": tuple(
            Region(name, first, scores, scores, scores if index else None) for index, (name, first) in enumerate(places)
        ),
        "facts": tuple(Fact(distance, -0.1, -0.1) for distance in (128, 256, 640, 1280)),
        "noise": 2e-4,
    }
    return LongText(**(fields | changes))


def route_case(*deviations: float, floor: float = 1e-4, **changes: Any) -> RouteCase:
    """One text whose prompt is one token below a window of 8, held against the reference route.

    Args:
        deviations: of the predictions of tokens 7, 8 ... from the reference's, in logits; no top token changes.
        floor: noise floor in logits.
        changes: fields of RouteCase.
    """
    fields: dict[str, Any] = {
        "name": "prompt W-1",
        "compared": LOGITS,
        "window": 8,
        "positions": frozen(np.arange(7, 7 + len(deviations))),
        "deviation": frozen(np.array(deviations, dtype=np.float64)),
        "flips": frozen(np.zeros(len(deviations), dtype=bool)),
        "floor": floor,
    }
    return RouteCase(**(fields | changes))


def route_run(*cases: RouteCase, **changes: Any) -> RouteRun:
    """A route in use, with one healthy text if there are no `cases`."""
    fields: dict[str, Any] = {
        "route": "cached",
        "title": "step by step with a cache",
        "condition": "if you generate with a cache",
        "declared": True,
        "cases": cases or (route_case(0.0, 1e-4),),
    }
    return RouteRun(**(fields | changes))
