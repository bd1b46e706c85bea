"""What queries and keys are turned by belongs to their positions, in every forward.

What it proves
    At the end of every forward of every pass, each layer was handed the cos and sin of the position id that the rotary
    embedding received: every angle is position times inverse frequency, with the frequencies that the model holds.

Why it matters
    Right frequencies and right position ids may still be handed on wrongly: the cos and sin of the step before, or
    those of a table that was cut short. Queries then stand at another distance from the keys than the text says, and
    nothing raises.

How to fix
    Read cos and sin by the position ids of this forward. Whoever keeps them from one step to the next renews them
    before the layers read them.

Known limits
    One token of a forward is looked at, the last one of the first row; at position 0 nothing turns. In half precision
    an angle may be off by what rounding cos and sin in that dtype explains. The ids are taken as they were received,
    and the frequencies as they are: `position-ids` and `rope-theta` judge them. Where the frequencies follow the length
    (dynamic, longrope), those of the loaded configuration are taken.

References
    RoPE, arXiv:2104.09864, section 3.2.2: a pair at position m is turned by the angle m x frequency.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator

import numpy as np

from gemma_doctor.check import CouldNotLook, NotApplicable, check, nothing_there
from gemma_doctor.evidence import Floats, Forward, ModelFacts, Pass, Trace, Turn
from gemma_doctor.finding import Examined, Finding, Severity, Sighting
from gemma_doctor.oracle import EPSILON, live_frequencies

# Of float32: cos and sin are computed from position x frequency, whose rounding grows with it.
RELATIVE_ERROR = 1e-5
NEAR = 64  # positions around the right one among which a wrong angle's own is looked for


@check()
def rope_positions(facts: ModelFacts, trace: Trace) -> Iterator[Finding | Examined]:
    """Each layer is turned by the angles of the positions of its own forward."""
    if not facts.rotary:
        raise NotApplicable("the model has no rotary frequencies")
    live = functools.cache(functools.partial(live_frequencies, facts))
    seen: dict[str, Sighting] = {}
    looked, left = 0, Counter[str]()
    for one, step, forward, turn in _turns(trace):
        length = 0 if forward.positions is None else int(forward.positions.max()) + 1
        for kind, layers in _by_kind(turn, trace):
            right = live(kind, length)
            if right is None or not forward.positions_agree or turn.dtype not in EPSILON:
                left[_why_not(forward, turn, kind)] += 1
                continue
            looked += 1
            if _is_at(turn.position, turn, right):
                continue
            if kind not in seen:
                observed = f"layer {layers[0]} at position {turn.position} {_as_elsewhere(turn, right)}"
                seen[kind] = Sighting(observed, "every pair: position x frequency", one.place(step, forward.total))
            for layer in layers:
                seen[kind].at(one.name, layer)
    unseen = ", ".join(f"{count:,} turns {reason}" for reason, count in left.items())
    if not looked:
        if unseen:
            raise CouldNotLook(f"not looked at: {unseen}")
        raise nothing_there(trace, "no layer is handed cos and sin")
    for kind, sighting in seen.items():
        title = f"{kind} layers are not turned by their positions"
        do = "hand the layers the cos and sin of this forward's position ids, not a kept or a cut table's"
        # frequencies that were handed over wrongly show at every position: that is rope-theta's to say
        yield sighting.finding(title, Severity.ERROR, do, gate="positions")
    yield Examined(looked, f"{looked:,} turns" + (f"; not looked at: {unseen}" if unseen else ""))


def _turns(trace: Trace) -> Iterator[tuple[Pass, int, Forward, Turn]]:
    """Those that say something: at position 0 not even the layout, and with it the number of pairs, can be told."""
    for one, step, forward in trace.forwards():
        for turn in forward.turns:
            if turn.position or turn.angles.any():
                yield one, step, forward, turn


def _why_not(forward: Forward, turn: Turn, kind: str) -> str:
    """Why a turn cannot be judged, in words."""
    if not forward.positions_agree:
        return "where rotary modules received different ids"
    if turn.dtype not in EPSILON:
        return f"in {turn.dtype}"
    return f"of {kind} layers, whose frequencies are not known"


def _by_kind(turn: Turn, trace: Trace) -> Iterator[tuple[str, list[int]]]:
    """The layers that were handed this cos and sin, by their kind."""
    kinds = {layer: trace.layer_kinds.get(layer, "") for layer in turn.layers}
    for kind in dict.fromkeys(kinds.values()):
        yield kind, sorted(layer for layer, own in kinds.items() if own == kind)


def _is_at(position: int, turn: Turn, right: Floats) -> bool:
    """The angles are those of a position, but for full turns and rounding."""
    if turn.angles.shape != right.shape:
        return False
    due = position * right
    off = np.abs((turn.angles - due + np.pi) % (2 * np.pi) - np.pi)
    return bool(np.all(off <= np.maximum(RELATIVE_ERROR * (1 + due), EPSILON[turn.dtype])))  # NaN is right nowhere


def _as_elsewhere(turn: Turn, right: Floats) -> str:
    """The position that the angles belong to, if it is near."""
    if turn.angles.shape != right.shape:
        return f"was turned in {turn.angles.size} pairs, not {right.size}"
    others = range(max(0, turn.position - NEAR), turn.position + NEAR + 1)
    other = next((position for position in others if _is_at(position, turn, right)), None)
    return "was turned by the angles of no position near it" if other is None else f"was turned as position {other}"
