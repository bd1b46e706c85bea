"""A token reads the same at its decode step as in one forward over the whole text.

What it proves
    The tokens of one pass were run twice: step by step with the cache, as generation does, and in one forward, as
    scoring does. In every layer and head the attention weights of each of these tokens agree, key by key, and so does
    what the kernel makes of the values with them.

Why it matters
    A model that scores well and writes badly is one in which the two routes differ. Its masks may all be right: what
    differs can be the cache's keys, the positions, or the kernel that a single query gets.

How to fix
    If a check of positions, masks or the cache fails as well, mend that first. If they pass, generate with
    use_cache=False, which is the other route, and compare --attn-implementation eager.

Known limits
    In float32 only. Over the skeletons of all presets and on the real Gemma 3 270M weights differ by at most 8e-6; a
    finding needs 1e-3 (`tolerance`). One sequence and a few tokens beyond the window's edge are looked at; logits are
    not.

References
    Measured in transformers 4.50 to 5.24.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gemma_doctor.check import CouldNotLook, NotApplicable, check, nothing_there
from gemma_doctor.evidence import PlacedReading, Trace, placed_readings
from gemma_doctor.finding import Examined, Finding, Location, Severity, counted

AGREES = 1e-3


@check()
def decode_parity(trace: Trace, *, tolerance: float = AGREES) -> Iterator[Finding | Examined]:
    """A token reads the same at its decode step as in one forward over the whole text."""
    if not trace.causal:
        raise NotApplicable("bidirectional: it does not generate")
    found = list(placed_readings(trace))
    rounded = trace.quantised or any(read.call.query_dtype != "float32" for read in found)
    if trace.unreadable or rounded:
        raise CouldNotLook(trace.unreadable or "weights are compared in float32 only")
    pairs = list(_pairs(found))
    if not pairs and any(forward.is_decode_step for _, _, forward in trace.forwards()):
        raise CouldNotLook("no token was read on both routes")
    if not pairs:
        raise nothing_there(trace, "no decode step with a cache")
    wrong = [pair for pair in pairs if not pair.largest <= tolerance]
    layers = {pair.step.call.layer for pair in pairs}
    if wrong:
        yield _disagreement(wrong, tolerance)
    said = f"{counted(len(pairs), 'row')} in {counted(len(layers), 'layer')}, decode step against one forward"
    most = max(pair.largest for pair in pairs)
    yield Examined(len(pairs), said + ("" if wrong else f": they agree to {most:.0e}"))


@dataclass(frozen=True)
class _Pair:
    """One token in one layer, on both routes.

    Attributes:
        weights: largest difference of two attention weights, key by key.
        outputs: largest difference of what the kernel put out, as a share of its largest number.
    """

    step: PlacedReading
    whole: PlacedReading
    weights: float
    outputs: float

    @property
    def largest(self) -> float:
        return max(self.weights, self.outputs)


def _pairs(found: list[PlacedReading]) -> Iterator[_Pair]:
    """Decode steps, each with the forward over the same tokens; where both can be judged."""
    forwards = {(read.one.same_tokens_as, read.call.layer): read for read in found if read.one.same_tokens_as}
    for step in found:
        whole = forwards.get((step.one.name, step.call.layer))
        if whole is None or not step.forward.is_decode_step or not step.judged.all():
            continue
        for row in np.flatnonzero(whole.queries == step.queries[0]):
            if whole.judged[0, row]:
                yield _pair(step, whole, int(row))


def _pair(step: PlacedReading, whole: PlacedReading, row: int) -> _Pair:
    by_token = np.zeros((2, step.weights.shape[1], max(step.real.shape[1], whole.real.shape[1])))
    by_token[0][:, step.columns[0]] = step.weights[0, :, 0]
    by_token[1][:, whole.columns[0]] = whole.weights[0, :, row]
    ours, theirs = step.outputs[0, 0], whole.outputs[0, row]
    outputs = np.abs(ours - theirs).max() / max(np.abs(theirs).max(), np.finfo(np.float32).tiny)
    return _Pair(step, whole, float(np.abs(by_token[0] - by_token[1]).max()), float(outputs))


def _disagreement(wrong: list[_Pair], tolerance: float) -> Finding:
    """Bound to no layer: whatever is wrong in one changes what all later ones are fed."""
    layers = sorted({pair.step.call.layer for pair in wrong})
    first = next(pair for pair in wrong if pair.step.call.layer == layers[0])
    worst = max(pair.weights for pair in wrong if pair.step.call.layer == layers[0])
    observed = f"weights differ by up to {worst:.2g} there"
    if worst <= tolerance:
        observed = f"the same weights, and outputs that differ by {first.outputs:.2g} of the largest: other values"
    row = f"first in layer {first.step.call.layer}, row {first.step.queries[0]}"
    return Finding(
        title="decode steps read otherwise than one forward over the same tokens",
        severity=Severity.ERROR,
        where=Location(
            passes=(first.step.one.name, first.whole.one.name),
            boundary=f"{row}; {counted(len(layers), 'layer')} in all",
        ),
        observed=observed,
        expected=f"weights and outputs the same to {tolerance:g}",
        do="if positions, masks and cache pass: generate with use_cache=False; compare another --attn-implementation",
    )
