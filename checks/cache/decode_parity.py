"""A token reads the same at its decode step as in one forward over the whole text.

What it proves
    The tokens of one pass were run twice: step by step with the cache, as generation does, and in one forward, as
    scoring does. In every layer and head the attention weights of each of these tokens agree, key by key.

Why it matters
    A model that scores well and writes badly is one in which the two routes differ. Its masks may all be right: what
    differs can be the cache's keys, the positions, or the kernel that a single query gets.

How to fix
    If a check of positions, masks or the cache fails as well, mend that first. If they pass, generate with
    use_cache=False, which is the other route, and compare --attn-implementation eager.

Known limits
    Weights are compared, not logits, and in float32 only. Over the skeletons of all presets and on the real Gemma 3
    270M they differ by at most 8e-6; a finding needs 1e-3. A few tokens beyond the window's edge are looked at.

References
    Measured in transformers 4.50 to 5.24.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemma_doctor.check import CouldNotLook, NotApplicable, check, nothing_there
from gemma_doctor.evidence import PlacedReading, Trace, placed_readings
from gemma_doctor.finding import Examined, Finding, Location, Severity, counted

AGREES = 1e-3


@check()
def decode_parity(trace: Trace) -> Iterator[Finding | Examined]:
    """A token reads the same at its decode step as in one forward over the whole text."""
    if not trace.causal:
        raise NotApplicable("bidirectional: it does not generate")
    found = list(placed_readings(trace))
    if trace.unreadable or any(read.call.query_dtype != "float32" for read in found):
        raise CouldNotLook(trace.unreadable or "weights are compared in float32 only")
    pairs = list(_pairs(found))
    if not pairs:
        raise nothing_there(trace, "no token was read on both routes")
    worst: dict[int, tuple[float, PlacedReading, PlacedReading]] = {}
    for step, whole, row in pairs:
        difference = _difference(step, whole, row)
        if difference >= worst.get(step.call.layer, (0.0,))[0]:
            worst[step.call.layer] = difference, step, whole
    wrong = [layer for layer in sorted(worst) if worst[layer][0] > AGREES]
    if wrong:
        yield _disagreement(*worst[wrong[0]], len(wrong))
    most = max(difference for difference, _, _ in worst.values())
    said = f"{counted(len(pairs), 'row')} in {counted(len(worst), 'layer')}, decode step against one forward"
    yield Examined(len(pairs), said + ("" if wrong else f": they agree to {most:.0e}"))


def _pairs(found: list[PlacedReading]) -> Iterator[tuple[PlacedReading, PlacedReading, int]]:
    """Decode steps, each with the forward over the same tokens and its row there; where both can be judged."""
    forwards = {(read.one.same_tokens_as, read.call.layer): read for read in found if read.one.same_tokens_as}
    for step in found:
        whole = forwards.get((step.one.name, step.call.layer))
        if whole is None or not step.forward.is_decode_step or not step.judged.all():
            continue
        for row in np.flatnonzero(whole.queries == step.queries[0]):
            if whole.judged[0, row]:
                yield step, whole, int(row)


def _difference(step: PlacedReading, whole: PlacedReading, row: int) -> float:
    """The largest between the weights of one token, key by key."""
    by_token = np.zeros((2, step.weights.shape[1], max(len(step.real[0]), len(whole.real[0]))))
    by_token[0][:, step.columns] = step.weights[0, :, 0]
    by_token[1][:, whole.columns] = whole.weights[0, :, row]
    return float(np.abs(by_token[0] - by_token[1]).max())


def _disagreement(difference: float, step: PlacedReading, whole: PlacedReading, layers: int) -> Finding:
    """Bound to no layer: whatever is wrong in one changes what all later ones are fed."""
    first = f"first in layer {step.call.layer}, row {step.queries[0]}; {counted(layers, 'layer')} in all"
    return Finding(
        title="decode steps read otherwise than one forward over the same tokens",
        severity=Severity.ERROR,
        where=Location(passes=(step.one.name, whole.one.name), boundary=first),
        observed=f"weights differ by up to {difference:.2g}",
        expected=f"at most {AGREES:g}: the same weights, but for rounding",
        do="if positions, masks and cache pass: generate with use_cache=False, and try --attn-implementation eager",
    )
