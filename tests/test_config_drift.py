"""config-drift and context-length on evidence made by hand, and what the evidence is made from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gemma_doctor import compat, presets
from gemma_doctor.capture import drift as capture
from gemma_doctor.checks.config.config_drift import config_drift
from gemma_doctor.checks.config.context_length import context_length
from gemma_doctor.evidence import Arrival, Claim, ConfigDrift, Lengths, RopeClaim, TiedHead, Wanted
from gemma_doctor.finding import CheckResult, Finding, Outcome, Severity
from gemma_doctor.oracle import made_for, misspelt, reach
from gemma_doctor.testing import config, config_facts, model_facts, run_check
from gemma_doctor.testing import config_drift as healthy


def only(result: CheckResult) -> Finding:
    (finding,) = result.findings
    return finding


def said(drift: ConfigDrift) -> str:
    result = run_check(config_drift, drift=drift)
    assert (result.outcome, result.findings) == (Outcome.PASS, ()) and result.examined is not None
    return result.examined.sentence


# --- config-drift ----------------------------------------------------------------------------------------------------

SAME = (
    Arrival("hidden_activation", "gelu_pytorch_tanh", "gelu_pytorch_tanh"),
    Arrival("query_pre_attn_scalar", 256, 256.0),
    Arrival("num_key_value_heads", None, 4),  # a null asks for the class default
    Arrival("intermediate_size", 2048, [2048, 2048]),  # one number for every layer
)


def test_what_arrives_is_counted() -> None:
    drift = healthy(
        arrived=SAME,
        unread=(Claim("layer_switch", 4),),
        saved=(Arrival("head_dim", 8, 8),),
        head=TiedHead(True, "published config.json", True, None),
    )
    assert said(drift) == (
        "3 values arrive and the head is the embedding, 1 key read by nothing; "
        "1 of 1 the same when saved and loaded again"
    )


@pytest.mark.parametrize(
    ("before", "after"), [("gelu", "silu"), (50.0, None), (4, 8), ([1, 2], [1, 3]), (True, False), (2048, [2048, 1024])]
)
def test_a_value_that_arrives_changed(before: object, after: object) -> None:
    result = run_check(config_drift, drift=healthy(arrived=(*SAME, Arrival("text_config.key", before, after))))
    finding = only(result)
    assert (result.outcome, finding.severity, finding.standing) == (Outcome.FAIL, Severity.ERROR, True)
    assert finding.observed.startswith(repr(after)) and finding.expected.startswith(repr(before))


def test_only_what_arrives_is_said_to() -> None:
    loose = TiedHead(True, "published config.json", False, 0.31)
    result = run_check(config_drift, drift=healthy(arrived=(*SAME, Arrival("head_dim", 8, 4)), head=loose))
    assert result.examined is not None and result.examined.sentence == "3 of 4 values arrive"
    assert result.examined.count == 4


def test_a_long_value_is_cut() -> None:
    long = "k" * 10**6
    for sick in (
        healthy(arrived=(Arrival(long, 1, 2),)),
        healthy(misplaced=(Arrival(long, 1, 2),)),
        healthy(saved=(Arrival(long, 1, 2),)),
    ):
        finding = only(run_check(config_drift, drift=sick))
        assert len(finding.title) < 150 and len(finding.do) < 150
    finding = only(run_check(config_drift, drift=healthy(arrived=(Arrival("key", "x" * 500, "\n" * 500),))))
    assert len(finding.observed) < 90 and "\n" not in finding.observed


def test_a_key_with_a_slip_in_it() -> None:
    drift = healthy(
        arrived=SAME, unread=(Claim("text_config.sliding_windw", 512),), absent={"sliding_window": 4096, "head_dim": 8}
    )
    finding = only(run_check(config_drift, drift=drift))
    assert finding.severity is Severity.ERROR
    assert (
        finding.title
        == "text_config.sliding_windw is read by nothing; sliding_window is, and the file does not write it"
    )
    assert finding.observed == "sliding_window 4096 in force, the class default"
    same = replace(drift, absent={"sliding_window": 512})
    assert only(run_check(config_drift, drift=same)).severity is Severity.NOTE
    assert run_check(config_drift, drift=replace(drift, absent={"head_dim": 8})).findings == ()


def test_words_that_differ_by_a_letter_and_are_both_meant() -> None:
    boi = healthy(arrived=SAME, unread=(Claim("boi_token_id", 5),), absent={"bos_token_id": 2})
    assert run_check(config_drift, drift=boi).findings == ()


@pytest.mark.parametrize(
    ("written", "right"),
    [
        ("sliding_windw", "sliding_window"),
        ("slidng_wimdow", ""),
        ("sliding_wnidow", "sliding_window"),
        ("slidingWindow", "sliding_window"),
        ("sliding-window", "sliding_window"),
        ("attention_bais", "attention_bias"),
        ("max_position_embedding", "max_position_embeddings"),
        ("v_head_dim", ""),
        ("rms_norm_eps", ""),
        ("layer_norm_epsilon", ""),
        ("mlp_bias", ""),
        ("window", ""),
    ],
)
def test_which_key_was_meant(written: str, right: str) -> None:
    known = ("attention_bias", "head_dim", "max_position_embeddings", "rms_norm_eps", "sliding_window")
    assert misspelt(written, known) == right


def test_a_value_beside_the_text_part() -> None:
    there = Arrival("sliding_window", 256, 512)
    finding = only(run_check(config_drift, drift=healthy(arrived=SAME, misplaced=(there,))))
    assert finding.severity is Severity.WARNING and finding.observed == "512 in force"
    assert run_check(config_drift, drift=healthy(arrived=SAME, misplaced=(replace(there, after=256),))).findings == ()


def test_a_value_that_saving_changes() -> None:
    """As EmbeddingGemma's window did from 4.57 to 5.14: half of it, at every round."""
    finding = only(run_check(config_drift, drift=healthy(arrived=SAME, saved=(Arrival("sliding_window", 257, 129),))))
    assert (finding.severity, finding.observed) == (Severity.WARNING, "129 after one round")


def test_a_configuration_that_cannot_be_saved() -> None:
    assert "no such" in only(run_check(config_drift, drift=healthy(arrived=SAME, unsaved="OSError: no such"))).observed


@pytest.mark.parametrize(
    ("head", "sick"),
    [
        (TiedHead(True, "published config.json", True, None), False),
        (TiedHead(False, "published config.json", False, None), False),
        (TiedHead(True, "published config.json", False, 0.0), False),  # two tensors, and the same numbers
        (TiedHead(True, "published config.json", False, 0.31), True),
    ],
)
def test_an_output_head_that_came_loose(head: TiedHead, sick: bool) -> None:
    findings = run_check(config_drift, drift=healthy(arrived=SAME, head=head)).findings
    assert [one.severity for one in findings] == [Severity.ERROR] * sick


# --- what the evidence is made from ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gemma-3-270m", "gemma-2b", "gemma-4-E2B-it", "starcoder2-7b"])
def test_a_healthy_skeleton_drifts_nowhere(patient_of: Any, name: str) -> None:
    drift = capture.config_drift(patient_of(name, "eager"))
    assert run_check(config_drift, drift=drift).findings == ()
    assert len(drift.arrived) > 10 and len(drift.saved) > 20 and drift.head is None
    assert len(drift.kinds) == presets.load(name).get("text_config", presets.load(name))["num_hidden_layers"]


def test_a_slip_and_a_misplaced_key_are_seen(patient_of: Any) -> None:
    patient = patient_of("gemma-4-E2B-it", "eager")
    whole = patient.subject.published
    text = {"sliding_windw" if key == "sliding_window" else key: value for key, value in whole["text_config"].items()}
    published = {**whole, "text_config": text, "rms_norm_eps": 1e-3}
    sick = replace(patient, subject=replace(patient.subject, published=published))
    drift = capture.config_drift(sick)
    assert Claim("text_config.sliding_windw", 512) in drift.unread and "sliding_window" in drift.absent
    assert drift.misplaced == (Arrival("rms_norm_eps", 1e-3, 1e-6),)


def test_keys_that_a_class_knows_under_another_name() -> None:
    known = compat.known_keys(compat.new_text_config("starcoder2", {}))
    assert {"num_hidden_layers", "tie_word_embeddings", "norm_epsilon"} <= known and "sliding_windw" not in known


# --- context-length --------------------------------------------------------------------------------------------------


def with_rope(rope_type: str, positions: int | None = 64, **terms: Any) -> Any:
    return config_facts(rope={"": RopeClaim("rope_scaling", 1e4, rope_type, terms)}, max_positions=positions)


ORIGINAL = "original_max_position_embeddings"


def test_positions_published_and_loaded() -> None:
    lengths = Lengths((Wanted("the prompt", 60, True),))
    result = run_check(context_length, config=config(), facts=model_facts(), lengths=lengths)
    assert result.findings == () and result.examined is not None
    assert result.examined.sentence == "64 positions published = loaded; 60 asked for"
    assert run_check(context_length, config=config()).outcome is Outcome.PASS
    nowhere = config_facts(max_positions=None)
    result = run_check(context_length, config=config(nowhere), facts=model_facts(nowhere))
    assert result.outcome is Outcome.NOT_APPLICABLE
    result = run_check(context_length, config=config(nowhere), facts=model_facts())
    assert result.examined is not None and result.examined.sentence == "64 positions loaded (class default)"


def test_positions_that_loading_loses() -> None:
    finding = only(run_check(context_length, config=config(), facts=model_facts(config_facts(max_positions=32))))
    assert (finding.severity, finding.observed) == (Severity.ERROR, "max_position_embeddings 32 loaded")


@pytest.mark.parametrize(("tokens", "sick"), [(64, False), (65, True)])
@pytest.mark.parametrize("of_this_run", [True, False])
def test_more_tokens_than_positions(tokens: int, sick: bool, of_this_run: bool) -> None:
    lengths = Lengths((Wanted("--length", tokens, of_this_run),))
    findings = run_check(context_length, config=config(), facts=model_facts(), lengths=lengths).findings
    assert [one.severity for one in findings] == [Severity.WARNING] * sick


@pytest.mark.parametrize(
    ("facts", "sick"),
    [
        (with_rope("yarn", **{"factor": 4.0, ORIGINAL: 16}), False),
        (with_rope("yarn", **{"factor": 2.0, ORIGINAL: 16}), True),
        (with_rope("llama3", **{"factor": 2.0, ORIGINAL: 16}), False),  # as Llama 3.1 publishes it
        (with_rope("longrope", **{ORIGINAL: 16}), False),
        (with_rope("linear", factor=2.0), False),
        (with_rope("yarn", **{"factor": "x", ORIGINAL: 16}), False),
    ],
)
def test_a_scaling_that_does_not_reach_as_far_as_the_positions(facts: Any, sick: bool) -> None:
    findings = run_check(context_length, config=config(facts)).findings
    assert [one.severity for one in findings] == [Severity.WARNING] * sick


def test_how_far_a_model_may_be_used() -> None:
    plain = config_facts(rope={"": RopeClaim("rope_theta", 1e4)})
    assert reach(plain) == 64 and reach(replace(plain, max_positions=None)) is None
    assert reach(with_rope("dynamic", factor=4.0)) == 256
    assert reach(with_rope("yarn", **{"factor": 4.0, ORIGINAL: 64})) == 256  # laid over, positions left alone
    assert reach(with_rope("linear", factor=4.0)) == 64
    assert reach(with_rope("linear", factor=4.0), plain) == 256
    assert reach(with_rope("linear", factor=4.0), with_rope("linear", factor=4.0)) == 64
    assert made_for(plain) is None and made_for(with_rope("yarn", **{"factor": 4.0, ORIGINAL: 16})) == 64
