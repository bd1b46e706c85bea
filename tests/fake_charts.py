"""Charts made by hand: attention with a sink and peaks, as a healthy model of the Gemma 3 kind shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gemma_doctor.charts.chart import Chart, Panel, shares
from gemma_doctor.evidence import FULL, SLIDING, Bools, Floats32, Ints
from gemma_doctor.oracle import causal, sliding

WORDS = ("▁the", "▁of", "▁a", "ing", "▁model", ",", "▁key", "s", "▁reads", "\n", "▁window", ".", "▁in", "é", "▁你好")
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '=HYPERLINK("http://evil","x")',
    "@SUM(1)",
    "\x1b[31mred",
    "\u202eevil",
    "$x^2_{",
    "你好",
    "\ud800",
    "\U0001f600",
    "\x00",
    "&amp;\"'",
    "\u2028",
    "a,b\r\n",
)
PERIOD = 6


def attention(allowed: Bools, heads: int, seed: int) -> Floats32:
    """Weights of shape (heads, q, k): a sink on the first key, recency, and a few peaks of its own for every head."""
    rng = np.random.default_rng(seed)
    queries, keys = allowed.shape
    distance = np.arange(keys)[::-1]
    scores = rng.normal(0, 1.5, (heads, 1, keys)) + rng.normal(0, 0.4, (heads, queries, keys)) - np.log1p(distance)
    scores[:, :, rng.integers(0, keys, 5)] += 4
    scores[..., allowed.any(axis=0).argmax()] += 6
    raised = np.where(allowed, np.exp(scores - scores.max()), 0)
    total = raised.sum(axis=-1, keepdims=True)
    return np.divide(raised, total, out=np.zeros_like(raised), where=total > 0).astype(np.float32)


def panel(layer: int, queries: Ints, keys: Ints, kind: str, *, heads: tuple[str, ...], window: int) -> Panel:
    """One layer; a decode step (one query) is not handed what its sliding cache has dropped."""
    is_sliding = layer % PERIOD != PERIOD - 1
    rule = sliding(window) if is_sliding else causal
    allowed = rule(queries[:, None], keys[None]) & (keys[None] >= 0)
    weights = attention(allowed, 4, seed=layer)
    dropped = ~allowed if len(queries) == 1 and is_sliding else keys[None] > queries[:, None]
    dropped = dropped & (keys[None] >= 0)
    shown = {"mean": weights.mean(axis=0), "max": weights.max(axis=0)}
    values = np.stack([shown[one] if one in shown else weights[int(one)] for one in heads])
    values = np.broadcast_to(allowed, values.shape) if kind == "mask" else values
    return Panel(
        layer=layer,
        kind=SLIDING if is_sliding else FULL,
        window=window if is_sliding else None,
        heads=heads,
        values=np.where(dropped, np.nan, values).astype(np.float32),
        allowed=allowed,
        shares=shares(weights, allowed, queries, keys) if kind == "attention" else None,
    )


def chart(
    length: int = 1000,
    *,
    kind: str = "attention",
    layers: tuple[int, ...] = tuple(range(18)),
    heads: tuple[str, ...] = ("mean",),
    queries: int = 1,
    pads: int = 0,
    window: int = 512,
    words: tuple[str, ...] = WORDS,
    **more: Any,
) -> Chart:
    """Healthy: the last `queries` of `length` keys, `pads` of them left pads."""
    keys = np.arange(-pads, length - pads)
    rows = keys[-queries:]
    if kind == "influence":
        panels: tuple[Panel, ...] = (influence(keys, rows, window),)
    else:
        panels = tuple(panel(one, rows, keys, kind, heads=heads, window=window) for one in layers)
    facts = {
        "transformers": "5.24.0",
        "torch": "2.13.0",
        "seed": "0",
        "prompt": f"{length:,} tokens from docstrings of Python's standard library",
        "rows": "read at the decode step" if queries == 1 else "read at prefill",
    }
    return Chart(
        kind=kind,
        subject="gemma-3-270m",
        headline="gemma3_text, 18 layers (15 sliding W=512, 3 full), real weights, float32, sdpa, cpu",
        facts=facts,
        queries=rows,
        keys=keys,
        tokens=tuple("<pad>" if key < 0 else "<bos>" if key == 0 else words[key % len(words)] for key in keys),
        panels=panels,
        **more,
    )


def influence(keys: Ints, rows: Ints, window: int) -> Panel:
    """The whole stack: reach is 3 windows."""
    reach = np.maximum(0, rows - 3 * (window - 1))
    allowed = (keys[None] <= rows[:, None]) & (keys[None] >= reach[:, None])
    values = attention(allowed, 1, seed=0)
    values = values / values.max(axis=-1, keepdims=True)
    return Panel(
        layer=None, kind="", window=None, heads=("mean",), values=values, allowed=allowed, reach=reach.astype(np.int64)
    )


def with_panel(one: Chart, index: int, **changes: Any) -> Chart:
    """The chart with one panel changed."""
    panels = list(one.panels)
    panels[index] = replace(panels[index], **changes)
    return replace(one, panels=tuple(panels))


def window_ignored(one: Chart, index: int) -> Chart:
    """The chart with a layer that reads 40 keys before its window, a tenth of its weight, in every head shown."""
    sick = one.panels[index]
    values = sick.values.copy()
    edge = int(sick.allowed[0].argmax())
    values[..., max(0, edge - 40) : edge] = 0.1 / 40 if one.kind == "attention" else 1
    changed = replace(sick.shares, beyond=0.1, inside=0.9) if sick.shares else None
    return with_panel(one, index, values=values, shares=changed)


def key_missing(one: Chart, index: int) -> Chart:
    """The chart with a layer that lacks the oldest key of its window."""
    sick = one.panels[index]
    values = sick.values.copy()
    values[..., int(sick.allowed[0].argmax())] = 0 if one.kind == "mask" else np.nan
    return with_panel(one, index, values=values)


def misplaced(one: Chart, index: int) -> Chart:
    """The chart with a layer whose cache holds tokens in the wrong slots."""
    return with_panel(one, index, misplaced=((5, 4), (6, 5), (7, 1), (8, None), (9, 3), (10, 2)))
