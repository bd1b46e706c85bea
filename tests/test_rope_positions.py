"""rope-positions catches turns that belong to other positions, and leaves frequencies to rope-theta."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_config_checks import LONG_AND_SHORT

from gemma_doctor.checks.positions.rope_positions import rope_positions
from gemma_doctor.checks.positions.rope_theta import rope_theta
from gemma_doctor.diagnosis import chosen_checks
from gemma_doctor.evidence import SLIDING, Floats, RopeClaim, Trace, Turn, frozen
from gemma_doctor.finding import CheckResult, Finding, Outcome
from gemma_doctor.oracle import inverse_frequencies
from gemma_doctor.settings import Settings
from gemma_doctor.testing import config, config_facts, model_facts, one_pass, run_check, trace
from gemma_doctor.triage import triage

LONG = one_pass(prompt=12, steps=3, name="beyond")
FREQUENCIES = inverse_frequencies(RopeClaim("rope_theta", 1e4), 8)[0]


def only(result: CheckResult) -> Finding:
    (finding,) = result.findings
    assert result.outcome is Outcome.FAIL
    return finding


def said(result: CheckResult) -> str:
    assert result.examined is not None
    return result.examined.sentence


def wrapped(angles: Floats, dtype: str = "float32") -> Floats:
    """As they come out of cos and sin in a dtype; bfloat16 is float32 without its last 16 bits."""
    c, s = (part.astype(np.float32) for part in (np.cos(angles), np.sin(angles)))
    if dtype == "bfloat16":
        c, s = ((part.view(np.uint32) & 0xFFFF0000).view(np.float32) for part in (c, s))
    return np.arctan2(s.astype(np.float64), c.astype(np.float64))


def turned(
    late: int = 0, dtype: str = "float32", first: int = 0, frequencies: Floats = FREQUENCIES, **changes: Any
) -> Trace:
    """LONG, whose sliding layer is turned by the angles of `late` positions before, from forward `first` on."""
    forwards = []
    for step, one in enumerate(LONG.forwards):
        assert one.positions is not None
        position = int(one.positions[0, -1])
        angles = wrapped((position - late * (step >= first)) * frequencies, dtype)
        forwards.append(replace(one, turns=(Turn((0,), position, frozen(angles), dtype),)))
    return trace(replace(LONG, forwards=tuple(forwards)), **changes)


def test_every_forward_is_held_against_its_positions() -> None:
    result = run_check(rope_positions, facts=model_facts(), trace=turned())
    assert (result.outcome, said(result)) == (Outcome.PASS, "4 turns")


def test_cos_and_sin_of_the_step_before() -> None:
    finding = only(run_check(rope_positions, facts=model_facts(), trace=turned(late=1, first=1)))
    assert finding.title == "sliding_attention layers are not turned by their positions"
    assert finding.observed == "layer 0 at position 12 was turned as position 11"
    assert (finding.where.layers, finding.where.passes) == ((0,), ("beyond",))
    assert finding.where.boundary.startswith("pass 'beyond', step 1,")


@pytest.mark.parametrize(
    ("angles", "words"),
    [
        ([0.5, 0.5, 0.5, 0.5], "by the angles of no position near it"),
        ([np.nan] * 4, "by the angles of no position near it"),
        ([0.5, 0.5], "in 2 pairs, not 4"),
    ],
)
def test_angles_that_are_nowhere_near(angles: list[float], words: str) -> None:
    healthy = turned()
    wrong = replace(healthy.passes[0].forwards[2], turns=(Turn((0,), 13, frozen(np.array(angles)), "float32"),))
    forwards = (*healthy.passes[0].forwards[:2], wrong)
    sick = replace(healthy, passes=(replace(healthy.passes[0], forwards=forwards),))
    finding = only(run_check(rope_positions, facts=model_facts(), trace=sick))
    assert finding.observed == f"layer 0 at position 13 was turned {words}"


def test_in_half_precision_what_rounding_does_not_explain_is_found() -> None:
    assert run_check(rope_positions, facts=model_facts(), trace=turned(0, "bfloat16")).outcome is Outcome.PASS
    finding = only(run_check(rope_positions, facts=model_facts(), trace=turned(1, "bfloat16")))
    assert finding.observed == "layer 0 at position 11 was turned as position 10"
    assert only(
        run_check(rope_positions, facts=model_facts(), trace=turned(0, "float32", frequencies=FREQUENCIES * 1.001))
    )


def test_what_could_not_be_judged_is_said() -> None:
    strange = run_check(rope_positions, facts=model_facts(), trace=turned(1, "float8_e5m2"))
    assert (strange.outcome, strange.reason) == (Outcome.SKIPPED, "not looked at: 4 turns in float8_e5m2")
    unknown = model_facts(rotary=model_facts().rotary[1:])
    nameless = run_check(rope_positions, facts=unknown, trace=turned())
    assert nameless.outcome is Outcome.SKIPPED and "sliding_attention layers, whose frequencies" in nameless.reason


def test_ids_that_differ_are_left_to_position_ids() -> None:
    late = turned(late=1, first=1)
    first, *others = late.passes[0].forwards
    unlike = (first, *(replace(one, positions_agree=False) for one in others))
    sick = replace(late, passes=(replace(late.passes[0], forwards=unlike),))
    result = run_check(rope_positions, facts=model_facts(), trace=sick)
    assert result.findings == ()
    assert said(result) == "1 turns; not looked at: 3 turns where rotary modules received different ids"


def test_a_wrong_theta_is_no_wrong_position() -> None:
    """The model turns by the frequencies that it holds: that they are wrong is said once."""
    healthy = model_facts()
    slow = replace(healthy.rotary[0], values=frozen(healthy.rotary[0].values / 8))
    assert slow.kind == SLIDING
    facts, handed = replace(healthy, rotary=(slow, *healthy.rotary[1:])), turned(frequencies=FREQUENCIES / 8)
    only(run_check(rope_theta, config=config(), facts=facts, trace=handed))
    assert run_check(rope_positions, facts=facts, trace=handed).outcome is Outcome.PASS


def test_frequencies_that_were_handed_wrongly_are_the_cause() -> None:
    """At every position, the first that is looked at included: then the positions are no cause of their own."""
    sick = turned(frequencies=FREQUENCIES / 8)
    slow = replace(sick.rotations[0], frequencies=frozen(FREQUENCIES / 8))
    sick = replace(sick, rotations=(slow, *sick.rotations[1:]))
    results = [
        run_check(rope_theta, config=config(), facts=model_facts(), trace=sick),
        run_check(rope_positions, facts=model_facts(), trace=sick),
    ]
    theta, positions = (only(one) for one in triage(results, chosen_checks(Settings())))
    assert (theta.follows_from, positions.follows_from) == ("", "rope-theta")


@pytest.mark.parametrize("scaling", [("dynamic", {"factor": 4.0}), ("longrope", LONG_AND_SHORT)])
def test_frequencies_that_follow_the_length_are_those_of_the_forward(scaling: Any) -> None:
    claim = RopeClaim("rope_scaling", 1e4, *scaling)
    facts = model_facts(config_facts(rope={"": claim}, max_positions=6))
    forwards = []
    for step, one in enumerate(LONG.forwards):
        length = 12 + step
        angles = (length - 1) * inverse_frequencies(claim, 8, 6, length)[0]
        forwards.append(replace(one, turns=(Turn((0, 1), length - 1, frozen(wrapped(angles)), "float32"),)))
    healthy = trace(replace(LONG, forwards=tuple(forwards)))
    assert run_check(rope_positions, facts=facts, trace=healthy).outcome is Outcome.PASS
    only(run_check(rope_positions, facts=facts, trace=turned(frequencies=facts.rotary[0].values)))


def test_without_turns_nothing_was_looked_at() -> None:
    assert run_check(rope_positions, facts=model_facts(), trace=trace(LONG)).outcome is Outcome.NOT_APPLICABLE
    assert run_check(rope_positions, facts=model_facts(rotary=()), trace=turned()).outcome is Outcome.NOT_APPLICABLE
