"""Positions turn at the published frequencies: file, loaded configuration, live buffers, and what each layer gets.

What it proves
    For every layer kind, the rotary parameters of the published file equal the loaded ones; the live inverse
    frequencies equal a float64 computation from the published parameters (default, linear, dynamic, yarn, llama3,
    longrope, proportional; partial rotation; per-kind theta); so do the angles that each layer's queries and keys
    received at position 1 in a real forward, and the factor on cos and sin.

Why it matters
    The frequencies are the model's only notion of distance. Two layer kinds often have two thetas (10,000 and
    1,000,000 in Gemma 3); swapping or losing one, or the scaling of one, raises nothing: near tokens still look right,
    far ones blur. A configuration can show the right theta while the frequencies were built with another.

How to fix
    Write theta and scaling in the spelling that the installed transformers reads (`rope_theta`,
    `rope_local_base_freq` and `rope_scaling` before 5.0, `rope_parameters` since), and set them before the model is
    built: the frequencies are computed once, a theta written into the configuration of a loaded model does nothing.

Known limits
    Angles per layer are compared only where cos and sin came in float32. Buffers in another dtype are compared at that
    dtype's precision; whether that is precise enough is another question. With dynamic scaling, only lengths within
    the model's positions are known here. Some families hand a rotation to layers that do not apply it.

References
    RoPE, arXiv:2104.09864; position interpolation, arXiv:2306.15595; YaRN, arXiv:2309.00071; LongRoPE,
    arXiv:2402.13753; Llama 3.1, arXiv:2407.21783; two thetas: Gemma 3, arXiv:2503.19786, section 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gemma_doctor.check import CouldNotLook, NotApplicable, check
from gemma_doctor.evidence import Config, ConfigFacts, Floats, ModelFacts, RopeClaim, Trace
from gemma_doctor.finding import Examined, Finding, Location, Severity
from gemma_doctor.oracle import EPSILON, agree, inverse_frequencies

# The worst of all published configurations, computed in float32, was 3.2e-7 (llama3 scaling).
RELATIVE_ERROR = 1e-5


@check()
def rope_theta(config: Config, facts: ModelFacts | None, trace: Trace | None) -> Iterator[Finding | Examined]:
    """Published = loaded = live rotary frequencies, for each layer kind."""
    published = config.published
    yield from _against_expectations(config, facts)
    if facts is None:
        if not published.rope:
            raise NotApplicable("the file names no rotary parameters")
        written = list(published.rope.values())
        named = all(claim.theta is not None for claim in written)
        spoken = _thetas(written) if named else " and ".join(map(_said, written))
        yield Examined(len(written), f"{spoken} published")
        return
    if not facts.rotary:
        raise NotApplicable("the model has no rotary frequencies")
    seen = _Seen()
    for kinds in _turning_alike(published, facts):
        yield from _kinds(kinds, published, facts, trace, seen)
    if not seen.claims:
        raise CouldNotLook("; ".join(seen.unknown) or "neither file nor configuration names a theta")
    dtypes = sorted({buffer.dtype for buffer in facts.rotary} - {"float32"})
    yield Examined(
        seen.compared,
        f"{_thetas(seen.claims)} live, worst relative error {seen.worst:.0e}"
        + (f" (kept in {', '.join(dtypes)})" if dtypes else "")
        + "".join(f"; not looked at: {reason}" for reason in seen.unknown),
    )


@dataclass
class _Seen:
    compared: int = 0
    worst: float = 0.0
    claims: list[RopeClaim] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def _turning_alike(published: ConfigFacts, facts: ModelFacts) -> list[tuple[str, ...]]:
    """Layer kinds, together where neither file nor configuration tells them apart."""
    kinds = tuple(dict.fromkeys(layer.kind for layer in facts.layers))
    return [kinds] if {*published.rope, *facts.loaded.rope} <= {""} else [(kind,) for kind in kinds]


def _kinds(
    kinds: tuple[str, ...], published: ConfigFacts, facts: ModelFacts, trace: Trace | None, seen: _Seen
) -> Iterator[Finding]:
    written, loaded = _for_kind(published.rope, kinds[0]), _for_kind(facts.loaded.rope, kinds[0])
    claim = _completed(written, loaded)
    if claim is None or claim.theta is None:
        return
    layers = tuple(layer.index for layer in facts.layers if layer.kind in kinds)
    head_dim = next(layer.head_dim for layer in facts.layers if layer.kind in kinds)
    try:
        right = _candidates(claim, head_dim, published.max_positions or facts.loaded.max_positions)
    except ValueError as reason:
        seen.unknown.append(f"{' and '.join(kinds)}: {reason}")
        return
    seen.claims.append(claim)
    wrong = [f"loaded {_said(loaded)}"] if written and loaded and _differ(written, loaded) else []
    for name, values, limit in _live(kinds, layers, facts, trace):
        error = min(_worst_error(values, frequencies) for frequencies, _ in right)
        seen.compared += 1
        if error > limit:
            wrong.append(f"{name} {_apart(values, right[0][0])}")
        else:
            seen.worst = max(seen.worst, error)
    wrong += _wrong_scaling(layers, trace, [scaling for _, scaling in right])
    if wrong:
        yield Finding(
            title=f"{' and '.join(kinds)} layers do not turn at the published frequencies",
            severity=Severity.ERROR,
            where=Location(layers=layers),
            observed="; ".join([*wrong[:3], *([f"and {len(wrong) - 3} more"] if len(wrong) > 3 else [])]),
            expected=f"{_said(claim)} ({claim.key} in {published.origin if written else facts.loaded.origin})",
            do="set theta and scaling in the configuration before the model is built from it",
        )


def _for_kind(rope: Mapping[str, RopeClaim], kind: str) -> RopeClaim | None:
    return rope.get(kind) or rope.get("")


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


def _candidates(claim: RopeClaim, head_dim: int, max_positions: int | None) -> list[tuple[Floats, float]]:
    """Right frequencies and scaling: longrope has two sets, and which one is live depends on the last length fed."""
    right = [inverse_frequencies(claim, head_dim, max_positions)]
    if claim.rope_type == "longrope":
        beyond = int(claim.parameters["original_max_position_embeddings"]) + 1
        right.append(inverse_frequencies(claim, head_dim, max_positions, beyond))
    return right


def _live(
    kinds: Sequence[str], layers: Sequence[int], facts: ModelFacts, trace: Trace | None
) -> Iterator[tuple[str, Floats, float]]:
    """Name, frequencies and allowed relative error of all that serves these layers."""
    for buffer in facts.rotary:
        if buffer.kind in (*kinds, ""):
            yield buffer.name, buffer.values, max(RELATIVE_ERROR, EPSILON[buffer.dtype])
    for rotation in trace.rotations if trace else ():
        if rotation.layer in layers and rotation.dtype == "float32":
            yield f"layer {rotation.layer}", rotation.frequencies, RELATIVE_ERROR


def _wrong_scaling(layers: Sequence[int], trace: Trace | None, right: Sequence[float]) -> list[str]:
    return [
        f"layer {rotation.layer}: cos and sin scaled by {rotation.scaling:.6g}, not {right[0]:.6g}"
        for rotation in (trace.rotations if trace else ())
        if rotation.layer in layers
        and min(abs(rotation.scaling - one) for one in right) > max(RELATIVE_ERROR, EPSILON[rotation.dtype])
    ]


def _worst_error(values: Floats, right: Floats) -> float:
    if values.shape != right.shape:
        return float("inf")
    still = right == 0
    if np.any(values[still] != 0):
        return float("inf")
    return float(np.max(np.abs(values[~still] / right[~still] - 1), initial=0.0))


def _apart(values: Floats, right: Floats) -> str:
    """The pair that is furthest off, and the theta that the first two frequencies would give."""
    if values.shape != right.shape:
        return f"turns {values.size} pairs, not {right.size}"
    pair = int(np.argmax(np.abs(np.log(np.maximum(values, 1e-30) / np.maximum(right, 1e-30)))))
    as_theta = ""
    if values.size > 1 and values[0] > 0 < values[1]:
        # float32 rounding grows with the power, so more digits would be noise
        as_theta = f" (as theta {_number(float(f'{(values[0] / values[1]) ** values.size:.3g}'))})"
    return f"turns pair {pair} of {values.size} by {values[pair]:.4g} a token, not {right[pair]:.4g}{as_theta}"


def _differ(written: RopeClaim, other: RopeClaim) -> bool:
    """What both name is not the same."""
    if written.theta is not None and other.theta is not None and not agree(written.theta, other.theta):
        return True
    if written.rope_type and other.rope_type and written.rope_type != other.rope_type:
        return True
    both = written.parameters.keys() & other.parameters.keys()
    return any(not _same(written.parameters[key], other.parameters[key]) for key in both)


def _same(a: object, b: object) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return agree(a, b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b


def _against_expectations(config: Config, facts: ModelFacts | None) -> Iterator[Finding]:
    for one in config.expectations:
        for kind, demanded in one.facts.rope.items():
            expected, source = demanded, config.published
            claim = _for_kind(source.rope, kind)
            if facts is not None and (claim is None or claim.theta is None or not claim.rope_type):
                source, claim = facts.loaded, _for_kind(facts.loaded.rope, kind)
            # A whole file that names a theta and no scaling has none; single keys demand only themselves.
            if expected.theta is not None and one.facts.hidden_size is not None and not expected.rope_type:
                expected = replace(expected, rope_type="default")
            if claim is not None and _differ(expected, claim):
                yield Finding(
                    title=f"rotary parameters of {kind or 'all'} layers are not the ones expected",
                    severity=Severity.ERROR if one.binding else Severity.WARNING,
                    where=Location(
                        layers=tuple(x.index for x in facts.layers if kind in ("", x.kind)) if facts else ()
                    ),
                    observed=f"{_said(claim)} ({claim.key} in {source.origin})",
                    expected=f"{_said(expected)} ({one.facts.origin})",
                    do=f"set {claim.key} back, or drop the expectation if it was changed on purpose",
                )


def _said(claim: RopeClaim | None) -> str:
    if claim is None:
        return "nothing"
    scaling = f", {claim.rope_type}" if claim.rope_type not in ("", "default") else ""
    terms = [f"{key} {value}" for key, value in claim.parameters.items() if isinstance(value, (int, float, str))]
    return f"theta {_number(claim.theta)}{scaling}" + (f" ({', '.join(terms)})" if terms else "")


def _thetas(claims: Sequence[RopeClaim]) -> str:
    return " and ".join(dict.fromkeys(_number(claim.theta) for claim in claims))


def _number(theta: float | None) -> str:
    return "not named" if theta is None else f"{theta:,.6g}" if theta % 1 else f"{theta:,.0f}"
