"""What a heatmap shows, free of how it is drawn. Every renderer reads a Chart and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gemma_doctor.evidence import Bools, Floats, Floats32, Ints

EMPTY_ROUNDING = 1e-6  # of a sum of float32 weights


@dataclass(frozen=True)
class Shares:
    """Where the weight of one layer goes: mean over all heads and all shown queries, as shares of 1.

    Attributes:
        inside: on keys that the query should be able to read (its window, itself included).
        first: on the first real token (the usual sink); part of `inside` where the window still holds it.
        itself: on the query's own token.
        beyond: on keys that it must not read: outside the window, in the future, pads. Must be 0.
        total: sum of a row; below 1 where the kernel has sinks of its own (gpt-oss).
        has_sink: some row sums to less than 1 by more than rounding.
        entropy: of the row, normalised to a sum of 1, in nats.
    """

    inside: float
    first: float
    itself: float
    beyond: float
    total: float
    has_sink: bool
    entropy: float


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One layer, or the whole stack (kind "influence").

    Attributes:
        layer: index, None for the whole stack.
        kind: layer kind as the model names it ("sliding_attention", "full_attention" ...), "" for the whole stack.
        window: W of this layer, None if it has none.
        heads: one label for each entry of the first axis: ("mean",), ("max",), or head indices ("0", "3").
        values: shape (heads, queries, keys). Attention: weights, 0 to 1. Mask: 1 where the kernel may read the key, 0
            where not. Influence: norm of the gradient, divided by the largest of the row. NaN where the kernel was not
            even handed the key (a cache has dropped it, or it lies in the future).
        allowed: what a query should be able to read, from the oracle, shape (queries, keys).
        shares: attention only, else None.
        misplaced: keys that the kernel received instead of those that it should have, for the last shown query: (token
            whose place it is, token that is there, or None for an empty slot). Empty when all is well; the order of
            keys does no harm.
        reach: influence only: the first key that the pattern of layers lets the query depend on at all, per query,
            shape (queries,); else None.
    """

    layer: int | None
    kind: str
    window: int | None
    heads: tuple[str, ...]
    values: Floats32
    allowed: Bools
    shares: Shares | None = None
    misplaced: tuple[tuple[int, int | None], ...] = ()
    reach: Ints | None = None

    @property
    def title(self) -> str:
        """ "layer 5, full", "layer 0, sliding W=512", "whole stack"."""
        if self.layer is None:
            return "whole stack"
        width = f" W={self.window}" if self.window else ""
        return f"layer {self.layer}, {self.kind.removesuffix('_attention')}{width}"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A heatmap before it is drawn.

    Positions are those of real tokens: the first one is 0, left pads are negative. The key axis of all panels is
    `keys`, ascending and without gaps; queries are some of these positions.

    Attributes:
        kind: "attention", "mask" or "influence".
        subject: name, as the user gave it. Untrusted text, as are `tokens` and `headline`: escape it.
        headline: one line: family, layers, weights, dtype, backend, device.
        facts: what was used, in order: versions, seed, prompt and where it comes from, whether rows were read at decode
            steps or at prefill, tokens of the prompt ...: name -> text.
        notes: what a reader must know to read the picture right (filled prompt, sinks, layers left out ...).
        queries: positions of the shown rows, shape (q,).
        keys: positions of the key axis, shape (k,); pads are negative.
        tokens: the text of every key, shape (k,); "" if unknown.
        panels: one per layer, in layer order, or one for the whole stack.
        scale: "linear" or "log" (of the colours).
    """

    kind: str
    subject: str
    headline: str
    facts: Mapping[str, str]
    notes: tuple[str, ...] = ()
    queries: Ints
    keys: Ints
    tokens: tuple[str, ...]
    panels: tuple[Panel, ...]
    scale: str = "log"

    @property
    def is_single_row(self) -> bool:
        return len(self.queries) == 1


def shares(
    weights: Floats32, allowed: Bools, queries: Ints, keys: Ints, *, sums: Floats | None = None, rounding: float = 1e-4
) -> Shares:
    """Shares of one layer.

    Args:
        weights: of all heads, shape (heads, q, k); NaN counts as 0.
        allowed: shape (q, k).
        queries, keys: positions, shapes (q,) and (k,).
        sums: of the rows, shape (heads, q), where some weight lies on no token (empty slots of a cache): it is counted
            as beyond. None: all of it is in `weights`.
        rounding: by how much a sum may miss 1: float32 was seen to miss it by 5e-7.
    """
    known: Floats = np.nan_to_num(weights.astype(np.float64))
    shown = known.sum(axis=-1)
    total = shown if sums is None else sums
    spread = np.divide(known, shown[..., None], out=np.zeros_like(known), where=shown[..., None] > 0)
    logs = np.log(spread, out=np.zeros_like(spread), where=spread > 0)
    own = keys[None, :] == queries[:, None]
    nowhere = np.where(total - shown > EMPTY_ROUNDING, total - shown, 0)
    return Shares(
        inside=float((known * allowed).sum(axis=-1).mean()),
        first=float(known[..., keys == 0].sum(axis=-1).mean()),
        itself=float((known * own).sum(axis=-1).mean()),
        beyond=float(((known * ~allowed).sum(axis=-1) + nowhere).mean()),
        total=float(total.mean()),
        has_sink=bool(total.min(initial=1.0) < 1 - rounding),
        entropy=float(-(spread * logs).sum(axis=-1).mean()) + 0.0,
    )


def binned(values: Floats32, most: int) -> tuple[Floats32, int]:
    """Fewer columns, so that a picture or a terminal can show them: each keeps its largest value.

    Args:
        values: shape (..., k), NaN where there is nothing; a bin of nothing but NaN stays NaN.
        most: columns to show at most.

    Returns:
        Shape (..., bins), and how many keys a bin holds (the last one may hold fewer).
    """
    width = max(1, -(-values.shape[-1] // most))
    short = -values.shape[-1] % width
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, short)], constant_values=np.nan)
    groups = padded.reshape(*values.shape[:-1], -1, width)
    present = ~np.isnan(groups)
    largest = np.where(present, groups, -np.inf).max(axis=-1)
    return np.where(present.any(axis=-1), largest, np.nan).astype(np.float32), width
