"""Positions turn at the published frequencies: file, loaded configuration, live buffers, and what each layer gets.

What it proves
    For every layer kind, the rotary parameters of the published file equal the loaded ones; the live inverse
    frequencies equal a float64 computation from the published parameters (default, linear, dynamic, yarn, llama3,
    longrope, proportional; partial rotation; per-kind theta); so do the angles that each layer's queries and keys
    received at position 1 in a real forward, and the factor on cos and sin. Cos and sin are laid out as the layer
    applies them, so that it turns vectors and does not stretch them.

Why it matters
    The frequencies are the model's only notion of distance. Two layer kinds often have two thetas (10,000 and
    1,000,000 in Gemma 3); swapping or losing one, or the scaling of one, raises nothing: near tokens still look right,
    far ones blur. A configuration can show the right theta while the frequencies were built with another. And right cos
    and sin may be laid out in pairs where the layer turns halves.

How to fix
    Write theta and scaling in the spelling that the installed transformers reads (`rope_theta`,
    `rope_local_base_freq` and `rope_scaling` before 5.0, `rope_parameters` since), and set them before the model is
    built: the frequencies are computed once, a theta written into the configuration of a loaded model does nothing.

Known limits
    Angles per layer are compared only where cos and sin came in float32, and at one position: `rope-positions` looks
    at the others. Buffers in another dtype are compared at that
    dtype's precision; whether that is precise enough is another question. Where the frequencies follow the length
    (dynamic, longrope), the buffers are compared before the first forward. Some families hand a rotation to layers
    that do not apply it. The layout is compared with what the family's own function makes of it: a model whose cos and
    sin and whose function are both of another layout than its weights does not show.

References
    RoPE, arXiv:2104.09864; position interpolation, arXiv:2306.15595; YaRN, arXiv:2309.00071; LongRoPE,
    arXiv:2402.13753; Llama 3.1, arXiv:2407.21783; two thetas: Gemma 3, arXiv:2503.19786, section 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gemma_doctor.check import CouldNotLook, NotApplicable, check
from gemma_doctor.evidence import Config, ConfigFacts, Floats, ModelFacts, RopeClaim, Trace, theta_in_words
from gemma_doctor.finding import Examined, Finding, Location, Severity, ranges
from gemma_doctor.oracle import EPSILON, LARGEST_THETA, contradict, inverse_frequencies, usable_theta

# The worst of all published configurations, computed in float32, was 3.2e-7 (llama3 scaling).
RELATIVE_ERROR = 1e-5
LONGEST_VALUE = 40


@check()
def rope_theta(config: Config, facts: ModelFacts | None, trace: Trace | None) -> Iterator[Finding | Examined]:
    """Published = loaded = live rotary frequencies, for each layer kind."""
    unusable = [claim for claim in config.published.rope.values() if not usable_theta(claim)]
    if unusable:
        yield from (_unusable(key, claims, config.published.origin) for key, claims in _by_key(unusable))
        yield Examined(len(unusable), f"no usable theta in {config.published.origin}")
        return
    yield from _against_expectations(config, facts)
    if facts is None:
        _refuse_if_unwritten(config)
        written = list(config.published.rope.values())
        named = all(claim.theta is not None for claim in written)
        said = _thetas(written) if named else " and ".join(map(str, written))
        yield Examined(len(written), f"{said} published")
        return
    if not facts.rotary or not facts.layers:
        raise NotApplicable("the model has no rotary frequencies")
    groups = [_compared(kinds, config.published, facts, trace) for kinds in _turning_alike(config.published, facts)]
    yield from (_finding(one) for one in groups if one.wrong)
    judged = [one.claim for one in groups if one.claim is not None]
    unknown = [one.unknown for one in groups if one.unknown]
    if not judged:
        raise CouldNotLook("; ".join(unknown) or "neither file nor configuration names a theta")
    unknown += _not_compared(trace)
    dtypes = ", ".join(sorted({buffer.dtype for buffer in facts.rotary} - {"float32"}))
    said = f"{_thetas(judged)} live, worst relative error {max(one.worst for one in groups):.0e}"
    said += f" (kept in {dtypes})" if dtypes else ""
    yield Examined(sum(one.compared for one in groups), "; not looked at: ".join([said, *unknown]))


def _refuse_if_unwritten(config: Config) -> None:
    """Of a file alone: there must be something to look at, and to hold what is demanded against."""
    published = config.published
    for one in config.expectations:
        for kind, expected in one.facts.rope.items():
            claim = published.rope_of(kind)
            if one.binding and (claim is None or (claim.theta is None and expected.theta is not None)):
                raise CouldNotLook("rotary parameters are expected, and the file does not name them all")
    if not published.rope:
        raise NotApplicable("the file names no rotary parameters")


def _by_key(claims: Sequence[RopeClaim]) -> Iterator[tuple[str, RopeClaim]]:
    """One flat key may serve several kinds of layers."""
    yield from {claim.key: claim for claim in claims}.items()


def _unusable(key: str, claim: RopeClaim, origin: str) -> Finding:
    theta = claim.parameters.get("rope_theta", claim.theta)
    shown = f"{theta:g}" if isinstance(theta, float) else repr(theta)
    return Finding(
        title=f"{key} is no usable theta",
        severity=Severity.ERROR,
        observed=f"{shown if len(shown) <= LONGEST_VALUE else shown[:LONGEST_VALUE] + ' ...'} ({origin})",
        expected=f"a number above 0, such as 10,000, and at most {LARGEST_THETA:g}",
        do=f"write the theta that the model was trained with into {key}",
        keys=(key,),
    )


def _keys(claim: RopeClaim, published: ConfigFacts) -> tuple[str, ...]:
    """Where it is written. Flat spellings write the scaling beside theta."""
    return (claim.key, *(published.written("rope_scaling") if claim.key.endswith("rope_theta") else ()))


@dataclass(frozen=True)
class _Group:
    """Layers that turn alike, as compared.

    Attributes:
        claim: what is right, None where nobody names it, or it cannot be computed (`unknown` says why).
        keys: where that is written.
        head_dim, max_positions: what else the frequencies depend on.
        compared: how many live frequencies were held against it.
        worst: largest relative error among those that are right.
        wrong: what is not, in words.
    """

    kinds: tuple[str, ...]
    layers: tuple[int, ...]
    origin: str = ""
    claim: RopeClaim | None = None
    keys: tuple[str, ...] = ()
    head_dim: int = 0
    max_positions: int | None = None
    unknown: str = ""
    compared: int = 0
    worst: float = 0.0
    wrong: tuple[str, ...] = ()


def _turning_alike(published: ConfigFacts, facts: ModelFacts) -> list[tuple[str, ...]]:
    """Layer kinds, together where neither file nor configuration tells them apart."""
    kinds = tuple(dict.fromkeys(layer.kind for layer in facts.layers))
    return [kinds] if {*published.rope, *facts.loaded.rope} <= {""} else [(kind,) for kind in kinds]


def _compared(kinds: tuple[str, ...], published: ConfigFacts, facts: ModelFacts, trace: Trace | None) -> _Group:
    written, loaded = published.rope_of(kinds[0]), facts.loaded.rope_of(kinds[0])
    claim = _completed(written, loaded)
    layers = [layer for layer in facts.layers if layer.kind in kinds]
    group = _Group(
        kinds,
        tuple(layer.index for layer in layers),
        (published if written else facts.loaded).origin,
        head_dim=layers[0].head_dim,
        max_positions=published.max_positions or facts.loaded.max_positions,
    )
    if claim is None or claim.theta is None:
        return group
    if not usable_theta(claim):
        return replace(group, unknown=f"{' and '.join(kinds)}: no usable theta")
    try:
        right = _right(claim, group.head_dim, group.max_positions, trace)
    except ValueError as reason:
        return replace(group, unknown=f"{' and '.join(kinds)}: {reason}")
    live = [
        (name, values, due, _worst_error(values, due), limit)
        for name, values, due, limit in _live(group, facts, trace, right)
    ]
    lost = written and loaded and (contradict(written, loaded) or not usable_theta(loaded))
    wrong = [f"loaded {loaded}"] if lost else []
    wrong += [f"{name} {_apart(values, due)}" for name, values, due, error, limit in live if error > limit]
    wrong += _wrong_scaling(group, trace, right.factor)
    wrong += _wrong_layout(group, trace)
    worst = max((error for _, _, _, error, limit in live if error <= limit), default=0.0)
    return replace(
        group, claim=claim, keys=_keys(claim, published), compared=len(live), worst=worst, wrong=tuple(wrong)
    )


@dataclass(frozen=True)
class _Right:
    """What should be.

    Attributes:
        at_first: frequencies of a model that has not run yet, when its buffers were read.
        fed, factor: frequencies, and factor on cos and sin, in the forward in which the rotations were seen: dynamic
            and longrope scaling follow the length.
    """

    at_first: Floats
    fed: Floats
    factor: float


def _right(claim: RopeClaim, head_dim: int, max_positions: int | None, trace: Trace | None) -> _Right:
    """Rotations were seen in the prefill of the first pass."""
    length = trace.passes[0].prompt_length if trace and trace.passes else None
    at_first, _ = inverse_frequencies(claim, head_dim, max_positions)
    return _Right(at_first, *inverse_frequencies(claim, head_dim, max_positions, length))


def _finding(group: _Group) -> Finding:
    assert group.claim is not None
    more = [f"and {len(group.wrong) - 3} more"] if len(group.wrong) > 3 else []
    return Finding(
        title=f"{' and '.join(group.kinds)} layers do not turn at the published frequencies",
        severity=Severity.ERROR,
        where=Location(layers=group.layers),
        observed="; ".join([*group.wrong[:3], *more]),
        expected=f"{group.claim} ({group.claim.key} in {group.origin})",
        do="set theta and scaling in the configuration before the model is built from it",
        keys=group.keys,
    )


def _completed(written: RopeClaim | None, loaded: RopeClaim | None) -> RopeClaim | None:
    """The published parameters; what the file leaves out comes from the loaded configuration."""
    if written is None or loaded is None:
        claim = written or loaded
        return replace(claim, rope_type=claim.rope_type or "default") if claim else None
    same = written.rope_type in ("", loaded.rope_type)
    return RopeClaim(
        key=written.key,
        theta=loaded.theta if written.theta is None else written.theta,
        rope_type=written.rope_type or loaded.rope_type or "default",
        parameters={**(loaded.parameters if same else {}), **written.parameters},
    )


def _live(
    group: _Group, facts: ModelFacts, trace: Trace | None, right: _Right
) -> Iterator[tuple[str, Floats, Floats, float]]:
    """Name, frequencies, right ones and allowed relative error of all that serves these layers."""
    for buffer in facts.rotary:
        if buffer.kind in (*group.kinds, ""):
            yield buffer.name, buffer.values, right.at_first, max(RELATIVE_ERROR, EPSILON[buffer.dtype])
    for rotation in trace.rotations if trace else ():
        if rotation.layer in group.layers and rotation.dtype == "float32":
            yield f"layer {rotation.layer}", rotation.frequencies, right.fed, RELATIVE_ERROR


def _wrong_scaling(group: _Group, trace: Trace | None, right: float) -> list[str]:
    return [
        f"layer {rotation.layer}: cos and sin scaled by {rotation.scaling:.6g}, not {right:.6g}"
        for rotation in (trace.rotations if trace else ())
        if rotation.layer in group.layers
        and not abs(rotation.scaling - right) <= max(RELATIVE_ERROR, EPSILON[rotation.dtype])
    ]


def _wrong_layout(group: _Group, trace: Trace | None) -> list[str]:
    return [
        f"layer {rotation.layer}: cos and sin, as it applies them, change lengths by up to {rotation.distortion:.0%},"
        " and no rotation does: they are laid out for other pairs"
        for rotation in (trace.rotations if trace else ())
        if rotation.layer in group.layers
        and rotation.distortion is not None
        and not rotation.distortion <= max(RELATIVE_ERROR, 4 * EPSILON[rotation.dtype])
    ]


def _not_compared(trace: Trace | None) -> list[str]:
    """What layers were handed and could not be compared, in words."""
    rotations = trace.rotations if trace else ()
    rounded = [one for one in rotations if one.dtype != "float32"]
    dtypes = ", ".join(sorted({one.dtype for one in rounded}))
    said = {
        f"angles handed over in {dtypes}": rounded,
        "the layout of cos and sin, which is not known": [one for one in rotations if one.distortion is None],
    }
    return [f"{words} (layers {', '.join(ranges([one.layer for one in of]))})" for words, of in said.items() if of]


def _worst_error(values: Floats, right: Floats) -> float:
    still = right == 0
    if values.shape != right.shape or np.any(values[still] != 0):
        return float("inf")
    worst = float(np.max(np.abs(values[~still] / right[~still] - 1), initial=0.0))
    return worst if worst == worst else float("inf")  # NaN is right nowhere


def _apart(values: Floats, right: Floats) -> str:
    """The pair that is furthest off, and the theta that the first two frequencies would give."""
    if values.shape != right.shape:
        return f"turns {values.size} pairs, not {right.size}"
    with np.errstate(all="ignore"):
        pair = int(np.argmax(np.abs(np.log(np.maximum(values, 1e-30) / np.maximum(right, 1e-30)))))
        theta = float((values[0] / values[1]) ** values.size) if values.size > 1 else 0.0
    as_theta = ""
    if values[0] > 0 and 0 < theta <= LARGEST_THETA:
        # float32 rounding grows with the power, so more digits would be noise
        as_theta = f" (as theta {theta_in_words(float(f'{theta:.3g}'))})"
    return f"turns pair {pair} of {values.size} by {values[pair]:.4g} a token, not {right[pair]:.4g}{as_theta}"


def _against_expectations(config: Config, facts: ModelFacts | None) -> Iterator[Finding]:
    for one in config.expectations:
        for kind, expected in one.facts.rope.items():
            source, claim = _held_against(kind, config.published, facts)
            # A whole file that names a theta and no scaling has none; single keys demand only themselves.
            if expected.theta is not None and one.facts.hidden_size is not None and not expected.rope_type:
                expected = replace(expected, rope_type="default")
            if claim is None and one.binding and facts is not None:
                claim = RopeClaim("rope_theta", None)
            if claim is None or not (contradict(expected, claim) or (one.binding and _lacks(claim, expected, facts))):
                continue
            yield Finding(
                title=f"rotary parameters of {kind or 'all'} layers are not the ones expected",
                severity=one.severity,
                where=Location(layers=tuple(x.index for x in facts.layers if kind in ("", x.kind)) if facts else ()),
                observed=f"{claim} ({claim.key} in {source.origin})",
                expected=f"{expected} ({one.facts.origin})",
                do="restore the rotary parameters (theta and scaling), or drop the expectation if the change is meant",
                keys=_keys(claim, config.published),
            )


def _held_against(kind: str, published: ConfigFacts, facts: ModelFacts | None) -> tuple[ConfigFacts, RopeClaim | None]:
    """The published parameters of a layer kind where they are whole, else the loaded ones."""
    claim = published.rope_of(kind)
    if facts is not None and (claim is None or claim.theta is None or not claim.rope_type):
        return facts.loaded, facts.loaded.rope_of(kind)
    return published, claim


def _lacks(claim: RopeClaim, expected: RopeClaim, facts: ModelFacts | None) -> bool:
    """Something is expected that the claim does not name, and that no class default can still fill in."""
    whole = facts is not None or bool(claim.rope_type)
    scaled = expected.rope_type not in ("", "default")
    terms = {key: value for key, value in expected.parameters.items() if scaled or key == "partial_rotary_factor"}
    lacking = any(value not in (None, 1) and key not in claim.parameters for key, value in terms.items())
    return whole and (lacking or (claim.theta is None and expected.theta is not None))


def _thetas(claims: Sequence[RopeClaim]) -> str:
    return " and ".join(dict.fromkeys(theta_in_words(claim.theta) for claim in claims))
