"""Every position up to the published end is turned as its own, and told apart from its neighbours.

What it proves
    Rotary modules, asked directly for the positions 0, 1, around 256, around the window's edge, in the middle and at
    the end, give cos and sin of position times live frequency, for every layer kind and, where a scaling follows the
    length (dynamic, longrope), in short and in long texts. Position ids of all passes lie before that end.

Why it matters
    bfloat16 holds whole numbers up to 256, float16 up to 2,048. Where ids or angles pass through one of them,
    neighbouring tokens of a long text get the same place. Short prompts do not show it, and nothing raises.

How to fix
    Keep position ids whole numbers, and compute the angles in float32, whatever dtype the model runs in; round cos and
    sin only. Do not take the rotary buffers along when the model is cast.

Known limits
    The frequencies are taken as they are: `rope-theta` judges them. Modules are asked in float32 and past their hooks;
    what layers are handed in a forward is the business of `rope-positions`. Healthy modules were at most 0.48 x
    2^-23 x (1 + angle) off, on 43 models with up to 262,144 positions (one rounding of the product); 4 times 2^-23 x
    (1 + angle) are allowed, 0.12 radians at the last of 262,144.

References
    transformers pull request 29285 (positions in half precision); RoPE, arXiv:2104.09864, section 3.2.2.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemma_doctor.check import CouldNotLook, check
from gemma_doctor.evidence import Config, Floats, ModelFacts, Pass, RotaryRange, Trace, Turned
from gemma_doctor.finding import Examined, Finding, Location, Severity
from gemma_doctor.oracle import EPSILON, live_frequencies, reach

ROUNDINGS = 4
NEAR = 1024  # positions on both sides among which a wrong angle's own is looked for


@check(decides_before="positions")
def position_range(
    asked: RotaryRange, config: Config, facts: ModelFacts, trace: Trace | None
) -> Iterator[Finding | Examined]:
    """Positions from first to last are turned by position times frequency, and no pass goes past the last."""
    looked, last = 0, 0
    unknown = {asked.unasked} - {""}
    for turned in asked.turned:
        right = live_frequencies(facts, turned.kind, turned.length)
        if right is None or turned.dtype not in EPSILON:
            unknown.add(f"{turned.kind or 'all'} layers, whose frequencies are not known")
            continue
        looked, last = looked + turned.positions.size, max(last, turned.length - 1)
        yield from _wrong(turned, right, facts)
    yield from _beyond(reach(config.published, config.base) or reach(facts.loaded), trace)
    if not looked:
        raise CouldNotLook("; ".join(sorted(unknown)))
    left = f"; not looked at: {'; '.join(sorted(unknown))}" if unknown else ""
    yield Examined(looked, f"positions up to {last:,} turned as their own{left}")


def _wrong(turned: Turned, right: Floats, facts: ModelFacts) -> Iterator[Finding]:
    fits = turned.angles.shape[1:] == right.shape
    wrong = [at for at in range(turned.positions.size) if not (fits and _is_at(turned, at, right))]
    if not wrong:
        return
    first = int(turned.positions[wrong[0]])
    kind = turned.kind or "all"
    seen = _as_elsewhere(turned, wrong[0], right) if fits else f"in {turned.angles.shape[1]} pairs, not {right.size}"
    yield Finding(
        title=f"positions of {kind} layers are not turned as their own",
        severity=Severity.ERROR,
        where=Location(
            layers=tuple(layer.index for layer in facts.layers if turned.kind in ("", layer.kind)),
            boundary=f"from position {first:,} on, of those that were asked for",
        ),
        observed=f"position {first:,} is turned {seen}; {len(wrong)} of {turned.positions.size} asked are wrong",
        expected="position x frequency, for every position",
        do="keep position ids whole numbers and compute the angles in float32, whatever dtype the model runs in",
    )


def _is_at(turned: Turned, at: int, right: Floats, position: int | None = None) -> bool:
    """The angles asked for at index `at` are those of a position (its own unless it is given), but for full turns."""
    due = right * float(turned.positions[at] if position is None else position)
    off = np.abs((turned.angles[at] - due + np.pi) % (2 * np.pi) - np.pi)
    allowed = np.maximum(ROUNDINGS * EPSILON["float32"] * (1 + due), EPSILON[turned.dtype])
    return bool(np.all(off <= allowed))  # NaN is right nowhere


def _as_elsewhere(turned: Turned, at: int, right: Floats) -> str:
    own = int(turned.positions[at])
    nearest = sorted(range(max(own - NEAR, 0), own + NEAR + 1), key=lambda position: abs(position - own))
    other = next((position for position in nearest if _is_at(turned, at, right, position)), None)
    return "by the angles of no position near it" if other is None else f"as position {other:,}"


def _beyond(end: int | None, trace: Trace | None) -> Iterator[Finding]:
    """Ids that real tokens were given and the model has no position for."""
    highest = {one.name: _highest(one) for one in trace.passes} if trace and end else {}
    over = {name: position for name, position in highest.items() if end is not None and position >= end}
    if over and end is not None:
        name, position = max(over.items(), key=lambda item: item[1])
        yield Finding(
            title="tokens stand at positions beyond the last one",
            severity=Severity.ERROR,
            where=Location(passes=tuple(over), boundary=f"furthest in pass {name!r}"),
            observed=f"position {position:,}",
            expected=f"0 to {end - 1:,} (max_position_embeddings)",
            do="shorten the text, or stretch the rotation by the scheme that the weights were trained with",
        )


def _highest(one: Pass) -> int:
    seen = [forward.positions[forward.real] for forward in one.forwards if forward.positions is not None]
    return max((int(ids.max()) for ids in seen if ids.size), default=-1)
