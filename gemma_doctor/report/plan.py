"""A plan of the key-value cache, as tables for people or one JSON document.

The document, the same bytes for the same subject, options and memory:
    subject, family, dtype, batch; context: the one asked for; positions: of the model, or null;
    kinds: at that context, one per group of alike layers: kind, window (or null), kv_heads, head_dim, shares (they keep
        nothing of their own), layers, keys (needed per layer and row), bytes_per_token (all layers, one row), bytes and
        bytes_without_window (whole batch);
    contexts: growing, the last is the one asked for: context, bytes, bytes_without_window, fits (true, false or null);
    weights: bytes as stored, or null; weights_counted: whether they are part of what fits;
    memory: null, or from (who says so) and total in bytes;
    fits: at the context asked for, the cache with the weights if they are counted, else the cache alone;
    notes: sentences.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from gemma_doctor.oracle import size_in_words
from gemma_doctor.report.escape import escape

if TYPE_CHECKING:
    from gemma_doctor.budget import Budget, KindBudget
    from gemma_doctor.plan import Plan

KINDS_HEAD = ("layer kind", "layers", "numbers per key", "keys needed", "bytes/token", "cache", "without the window")
CONTEXTS_HEAD = ("context", "cache", "without the window")
FITS = {True: "yes", False: "NO", None: "not known"}
COUNTED = (
    "A sliding layer needs W keys at a step: W-1 that it kept, and the new token's own.",
    "Activations, and what the runtime itself takes, come on top.",
)


def text(plan: Plan) -> str:
    """Tables, and a last line that says whether it fits."""
    asked, facts = plan.asked, plan.facts
    positions = "" if facts.max_positions is None else f", {_counted(facts.max_positions, 'position')}"
    model = f"{escape(facts.family)}, {_counted(facts.layers or 0, 'layer')}{positions}"
    fits = "cache fits" if plan.weights is None else "fits"
    contexts = [
        (f"{one.context:,}", size_in_words(one.bytes), size_in_words(one.bytes_without_window), FITS[plan.fits(one)])
        for one in plan.ladder
    ]
    lines = [
        f"{escape(plan.subject)}: {model}; keys and values in {asked.dtype}, batch of {asked.batch:,}",
        "",
        f"at {_counted(asked.context, 'token')}:",
        *columns(KINDS_HEAD, [*map(_kind, asked.kinds), _total(asked)]),
        "",
        *columns((*CONTEXTS_HEAD, fits), contexts),
        "",
        *(f"note: {escape(note)}" for note in plan.notes),
        *COUNTED,
        _verdict(plan),
    ]
    return "\n".join(lines) + "\n"


def _kind(kind: KindBudget) -> tuple[str, ...]:
    layer = kind.layer
    name = layer.kind if layer.window is None else f"{layer.kind}, W={layer.window:,}"
    numbers = "another layer's" if layer.shares else f"2 x {layer.kv_heads} x {layer.head_dim}"
    sizes = size_in_words(kind.bytes), size_in_words(kind.bytes_without_window)
    return name, f"{kind.layers}", numbers, f"{kind.keys:,}", f"{kind.bytes_per_token:,}", *sizes


def _total(one: Budget) -> tuple[str, ...]:
    layers, per_token = sum(kind.layers for kind in one.kinds), sum(kind.bytes_per_token for kind in one.kinds)
    sizes = size_in_words(one.bytes), size_in_words(one.bytes_without_window)
    return "total", f"{layers}", "", "", f"{per_token:,}", *sizes


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Two spaces apart, figures to the right under their heads; the first column to the left."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return [
        "  ".join(
            [f"{row[0]:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in (head, *rows)
    ]


def _counted(number: int, word: str) -> str:
    """ "1 token", "32,768 tokens"."""
    return f"1 {word}" if number == 1 else f"{number:,} {word}s"


def _verdict(plan: Plan) -> str:
    """Of the cache alone it never says plainly that it fits: the weights come on top."""
    cache, at = size_in_words(plan.asked.bytes), f"at {_counted(plan.asked.context, 'token')}"
    subject, needed = "the cache needs", f"{cache} {at}"
    yes, no = "the cache fits", "the cache alone does not fit"
    if plan.weights is not None:
        both = size_in_words(plan.asked.bytes + plan.weights)
        subject, needed = "needs", f"{both} {at} ({cache} of cache, {size_in_words(plan.weights)} of weights)"
        yes, no = "fits", "DOES NOT FIT"
    if plan.memory is None:
        return f"{subject} {needed}; this machine does not say how much memory it has: --memory SIZE"
    return f"{yes if plan.fits(plan.asked) else no}: {needed}, in {size_in_words(plan.memory)} ({plan.memory_from})"


def document(plan: Plan) -> str:
    """JSON, pure ASCII, ending in a newline."""
    asked = plan.asked
    kinds = [asdict(kind) for kind in asked.kinds]
    content = {
        "subject": plan.subject,
        "family": plan.facts.family,
        "dtype": asked.dtype,
        "batch": asked.batch,
        "context": asked.context,
        "positions": plan.facts.max_positions,
        "kinds": [{**kind.pop("layer"), **kind} for kind in kinds],
        "contexts": [
            {
                "context": one.context,
                "bytes": one.bytes,
                "bytes_without_window": one.bytes_without_window,
                "fits": plan.fits(one),
            }
            for one in plan.ladder
        ],
        "weights": plan.weights,
        "weights_counted": plan.weights is not None,
        "memory": None if plan.memory is None else {"from": plan.memory_from, "total": plan.memory},
        "fits": plan.fits(asked),
        "notes": plan.notes,
    }
    return json.dumps(content, indent=2) + "\n"
