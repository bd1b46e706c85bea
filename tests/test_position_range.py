"""position-range and rope-coverage on evidence made by hand, and rotary modules asked directly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemma_doctor.capture.model_facts import model_facts as facts_of
from gemma_doctor.capture.rotary_range import rotary_range as ask
from gemma_doctor.checks.positions.position_range import position_range
from gemma_doctor.checks.positions.rope_coverage import rope_coverage
from gemma_doctor.evidence import FULL, SLIDING, Lengths, RopeClaim, RopeEffect, Wanted, frozen
from gemma_doctor.faults import all_faults
from gemma_doctor.finding import CheckResult, Finding, Outcome, Severity
from gemma_doctor.oracle import inverse_frequencies, lengths_apart, ntk_theta
from gemma_doctor.testing import (
    config,
    config_facts,
    model_facts,
    one_pass,
    rotary_range,
    run_check,
    trace,
    with_forward,
)

HALF = np.array([0, 1, 255, 256, 256, 64_000])  # what bfloat16 makes of the positions that are asked for


def only(result: CheckResult) -> Finding:
    (finding,) = result.findings
    return finding


# --- position-range --------------------------------------------------------------------------------------------------


def in_range(**changes: Any) -> CheckResult:
    facts = model_facts()
    return run_check(
        position_range, **{"asked": rotary_range(facts), "config": config(), "facts": facts, "trace": None, **changes}
    )


def test_positions_turned_as_their_own() -> None:
    result = in_range(trace=trace())
    assert (result.outcome, result.findings) == (Outcome.PASS, ()) and result.examined is not None
    assert result.examined.sentence == "positions up to 63,999 turned as their own"


def test_rounding_of_one_product_is_no_fault() -> None:
    asked = rotary_range(model_facts())
    rounded = tuple(replace(one, angles=frozen(one.angles * (1 + 2.0**-24))) for one in asked.turned)
    assert in_range(asked=replace(asked, turned=rounded)).findings == ()
    off = tuple(replace(one, angles=frozen(one.angles * (1 + 2.0**-20))) for one in asked.turned)
    assert in_range(asked=replace(asked, turned=off)).findings


def test_positions_rounded_to_bfloat16() -> None:
    facts = model_facts()
    asked = rotary_range(facts)
    rounded = replace(asked.turned[0], angles=frozen(HALF[:, None] * facts.rotary[0].values[None]))
    finding = only(in_range(asked=replace(asked, turned=(rounded, asked.turned[1]))))
    assert finding.severity is Severity.ERROR and finding.where.layers == (0,)
    assert finding.observed == "position 257 is turned as position 256; 2 of 6 asked are wrong"


def test_a_table_that_turns_another_number_of_pairs() -> None:
    asked = rotary_range(model_facts())
    short = replace(asked.turned[1], angles=frozen(asked.turned[1].angles[:, :2]))
    finding = only(in_range(asked=replace(asked, turned=(short,))))
    assert "in 2 pairs, not 4" in finding.observed


def test_ids_past_the_last_position() -> None:
    healthy = one_pass(prompt=12, steps=1)
    positions = healthy.forwards[0].positions
    assert positions is not None
    far = with_forward(healthy, 0, positions=frozen(positions + 60))
    finding = only(in_range(trace=trace(far)))
    assert (finding.observed, finding.expected) == ("position 71", "0 to 63 (max_position_embeddings)")
    assert finding.where.passes == (far.name,)


def test_lengths_at_which_a_scaling_turns_otherwise() -> None:
    assert lengths_apart(None, 64) == (64,)
    assert lengths_apart(RopeClaim("x", 1e4, "linear", {"factor": 4.0}), 64) == (64,)
    assert lengths_apart(RopeClaim("x", 1e4, "dynamic", {"factor": 4.0}), 64) == (64, 256)
    assert lengths_apart(RopeClaim("x", 1e4, "longrope", {"original_max_position_embeddings": 16}), 64) == (16, 64)
    assert lengths_apart(RopeClaim("x", 1e4, "longrope", {"original_max_position_embeddings": 64}), 64) == (64,)


@pytest.mark.parametrize("name", ["gemma-3-270m", "gpt-oss-20b", "gemma-4-E2B-it"])
def test_healthy_modules_and_rounded_ones(patient_of: Any, name: str) -> None:
    patient = patient_of(name, "eager")
    facts = facts_of(patient)
    evidence = {"config": patient.subject.config, "facts": facts}
    asked = ask(patient, facts.loaded)
    assert run_check(position_range, asked=asked, **evidence).findings == ()
    assert {one.length for one in asked.turned} == {asked.end}
    with all_faults()["positions-in-half-precision"].inject(patient):
        findings = run_check(position_range, asked=ask(patient, facts.loaded), **evidence).findings
    assert findings and all("position 257 is turned as position 256" in one.observed for one in findings)


@pytest.mark.parametrize("scaling", ["dynamic", "longrope"])
def test_asking_a_scaling_that_follows_the_length_leaves_no_trace(scaling: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from gemma_doctor import compat

    own = {"rope_type": scaling, "factor": 4.0}
    if scaling == "longrope":
        own |= {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0, 3.0, 4.0, 5.0]}
        own |= {"original_max_position_embeddings": 16}
    small = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    text = {**small, "num_hidden_layers": 1, "vocab_size": 32, "max_position_embeddings": 64, "rope_theta": 1e4}
    built = compat.new_text_config("llama", {**text, "rope_scaling": own})
    model = AutoModelForCausalLM.from_config(built).eval()

    class Stub:
        window = None

        class subject:  # noqa: N801
            config = config(config_facts(max_positions=64))

    stub: Any = Stub()
    stub.model = model
    facts = facts_of(stub)
    with torch.inference_mode():
        before = model(torch.arange(8)[None]).logits
        asked = ask(stub, facts.loaded)
        after = model(torch.arange(8)[None]).logits
    assert torch.equal(before, after)
    assert [one.length for one in asked.turned] == ([64, 256] if scaling == "dynamic" else [16, 64])
    result = run_check(position_range, asked=asked, config=stub.subject.config, facts=facts)
    assert result.findings == () and result.outcome is Outcome.PASS


# --- rope-coverage ---------------------------------------------------------------------------------------------------


def stretched(positions: int = 256, **changes: Any) -> Any:
    """From a base with 64 positions."""
    base = config_facts(origin="preset base")
    return replace(config(config_facts(max_positions=positions, **changes)), base=base)


def effect(cost: float, of_base: bool = True, spread: float = 0.0) -> RopeEffect:
    other = np.full(100, 2.0)
    own = other + cost + spread * np.where(np.arange(100) % 2, 1.0, -1.0)
    return RopeEffect("theta 1", "theta 2", of_base, frozen(own), frozen(other), "a text")


def covered(subject: Any, **evidence: Any) -> CheckResult:
    return run_check(rope_coverage, **{"config": subject, "facts": model_facts(subject.published), **evidence})


def test_a_context_as_long_as_it_was_trained() -> None:
    result = covered(stretched(64))
    assert (result.outcome, result.findings) == (Outcome.PASS, ()) and result.examined is not None
    assert result.examined.sentence == "64 positions, 64 trained"
    assert covered(stretched(32)).findings == ()


@pytest.mark.parametrize("static", [True, False])
def test_a_stretch_without_scaling(static: bool) -> None:
    finding = only(covered(stretched(), **({"facts": None} if static else {})))
    assert finding.severity is Severity.WARNING
    assert finding.observed == "256 positions with theta 1,000,000: wrong from position 64 on"
    assert finding.expected == "64 positions (preset base), or a scaling by 4"
    # 1e6 x 4^(8/6): heads of 8
    assert "rope_theta=6,349,604 (NTK-aware)" in finding.do


def test_a_stretch_that_this_run_goes_into() -> None:
    for tokens, severity in ((64, Severity.WARNING), (65, Severity.ERROR)):
        lengths = Lengths((Wanted("--length", tokens, True), Wanted("max_length", 200, False)))
        assert only(covered(stretched(), lengths=lengths)).severity is severity


def test_a_stretch_with_something_that_makes_up_for_it() -> None:
    yarn = RopeClaim("rope_scaling", 1e6, "yarn", {"factor": 4.0, "original_max_position_embeddings": 64})
    assert covered(stretched(rope={FULL: yarn, SLIDING: RopeClaim("x", 1e4)})).findings == ()
    assert covered(stretched(thetas=(1e4, 4e6))).findings == ()


def test_a_trained_length_that_the_file_names() -> None:
    own = RopeClaim("rope_parameters", 1e6, "default", {"original_max_position_embeddings": 32})
    finding = only(covered(config(config_facts(rope={"": own}))))
    assert "32 positions (original_max_position_embeddings in published config.json)" in finding.expected


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (stretched(kinds=(SLIDING, SLIDING)), "no layer that reads at any distance turns"),
        (stretched(family="cohere2"), "no layer that reads at any distance turns"),
        (config(), "nobody says for what length it was trained"),
    ],
)
def test_where_there_is_nothing_to_cover(subject: Any, reason: str) -> None:
    result = covered(subject)
    assert (result.outcome, result.reason) == (Outcome.NOT_APPLICABLE, reason)


def test_a_file_alone_that_does_not_say_which_layers_slide() -> None:
    assert covered(stretched(layer_kinds=None), facts=None).outcome is Outcome.SKIPPED
    assert covered(stretched(64, layer_kinds=None), facts=None).outcome is Outcome.PASS


def test_a_text_longer_than_the_positions_is_told_what_it_would_need() -> None:
    finding = only(covered(stretched(64), lengths=Lengths((Wanted("--length", 128, True),))))
    assert finding.severity is Severity.NOTE and "a scaling by 2" in finding.do


@pytest.mark.parametrize(
    ("measured", "sick"),
    [
        (effect(1.7), True),
        (effect(-0.2), False),
        (effect(0.005), False),  # consistent, and next to nothing
        (effect(0.3, spread=1.0), False),  # three standard errors
        (effect(0.5, spread=1.0), True),
        (effect(1.7, of_base=False), False),
    ],
)
def test_weights_that_read_better_with_another_rotation(measured: RopeEffect, sick: bool) -> None:
    findings = covered(stretched(64), effect=measured).findings
    assert [one.severity for one in findings] == [Severity.WARNING] * sick


def test_what_a_needed_theta_would_cost_is_said_with_the_stretch() -> None:
    finding = only(covered(stretched(), effect=effect(-0.003, of_base=False)))
    assert finding.effect == "1.997 nats a token with theta 1, 2.000 with theta 2 (100 tokens of a text)"


def test_the_theta_of_a_stretch_turns_the_slowest_pair_as_far() -> None:
    for claim, dim in (
        (RopeClaim("x", 1e6), 256),
        (RopeClaim("x", 1e4, "default", {"partial_rotary_factor": 0.5}), 128),
        (RopeClaim("x", 1e6, "proportional", {"partial_rotary_factor": 0.25}), 512),
    ):
        theta = ntk_theta(claim, 4.0, dim)
        before, after = inverse_frequencies(claim, dim)[0], inverse_frequencies(replace(claim, theta=theta), dim)[0]
        slowest = np.flatnonzero(before)[-1]
        assert after[slowest] * 4 == pytest.approx(before[slowest]) and after[0] == before[0]
    assert ntk_theta(RopeClaim("x", 1e6), 4.0, 256) == pytest.approx(4_043_902, abs=1)
