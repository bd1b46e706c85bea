"""sliding-window, layer-pattern, rope-theta, rms-norm-eps on evidence made by hand: healthy, and sick in one thing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from gemma_doctor import presets, published
from gemma_doctor.checks.config.layer_pattern import layer_pattern
from gemma_doctor.checks.config.sliding_window import sliding_window
from gemma_doctor.checks.numerics.rms_norm_eps import rms_norm_eps
from gemma_doctor.checks.positions.rope_theta import rope_theta
from gemma_doctor.evidence import FULL, SLIDING, Claim, LayerRotation, RopeClaim, RotaryBuffer, frozen
from gemma_doctor.expectations import lay_over
from gemma_doctor.finding import CheckResult, Finding, Outcome, Severity
from gemma_doctor.oracle import inverse_frequencies
from gemma_doctor.testing import (
    config,
    config_drift,
    config_facts,
    kernel_call,
    model_facts,
    one_pass,
    run_check,
    trace,
)

CHECKS = (sliding_window, layer_pattern, rope_theta, rms_norm_eps)
SAMPLES = Path(__file__).parent.parent / "sample_configs"
LONG = one_pass(prompt=12, steps=3, name="beyond")


def only(result: CheckResult) -> Finding:
    (finding,) = result.findings
    assert result.outcome is Outcome.FAIL
    return finding


def test_a_healthy_model_passes_with_all_that_was_compared_in_words() -> None:
    said = {}
    for check in CHECKS:
        evidence = {"config": config(), "facts": model_facts()}
        if check is not rms_norm_eps:
            rotations = tuple(replace(one, distortion=0.0) for one in trace().rotations)
            evidence["trace"] = trace(one_pass(), LONG, rotations=rotations)
        result = run_check(check, **evidence)
        assert (result.outcome, result.findings) == (Outcome.PASS, ())
        assert result.examined is not None
        said[result.check] = result.examined.sentence
    assert said == {
        "sliding-window": "8 published = loaded = 1 module = measured in 1 layer",
        "layer-pattern": "1 sliding, 1 full published = measured in 2 layers",
        "rope-theta": "10,000 and 1,000,000 live, worst relative error 0e+00",
        "rms-norm-eps": "1e-06 in 2 norms, measured in 2 (float32)",
    }


def test_what_could_not_be_compared_is_said() -> None:
    known, unknown = (
        replace(one, distortion=layout) for one, layout in zip(trace().rotations, (0.0, None), strict=True)
    )
    for rotations, left in [
        ((known, unknown), "; not looked at: the layout of cos and sin, which is not known (layers 1)"),
        ((replace(known, dtype="bfloat16"),), "; not looked at: angles handed over in bfloat16 (layers 0)"),
        ((known,), ""),
    ]:
        result = run_check(rope_theta, config=config(), facts=model_facts(), trace=trace(rotations=rotations))
        assert result.examined is not None
        assert result.examined.sentence == f"10,000 and 1,000,000 live, worst relative error 0e+00{left}"


@pytest.mark.parametrize("check", CHECKS)
def test_the_published_file_alone_is_enough_for_a_static_run(check: Any) -> None:
    assert run_check(check, config=config(expected=config_facts(origin="preset"))).outcome is Outcome.PASS


# --- expectations ----------------------------------------------------------------------------------------------------

CHANGED = {
    "window": (sliding_window, config_facts(window=4), "4 in published", "8 (preset)"),
    "switch": (
        sliding_window,
        config_facts(window_switch=Claim("use_sliding_window", False)),
        "no window (use_sliding_window=false)",
        "8 (preset)",
    ),
    "theta": (rope_theta, config_facts(thetas=(1e6, 1e6)), "theta 1,000,000", "theta 10,000 (preset)"),
    "scaling": (
        rope_theta,
        config_facts(rope={FULL: RopeClaim("rope_theta", 1e6, "linear", {"factor": 8.0})}),
        "linear (factor 8.0)",
        "theta 1,000,000 (preset)",
    ),
    "eps": (rms_norm_eps, config_facts(eps=1e-3), "0.001", "1e-06 (preset)"),
}


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("binding", [True, False])
def test_a_file_that_is_not_what_was_expected(name: str, binding: bool) -> None:
    check, changed, observed, expected = CHANGED[name]
    finding = only(run_check(check, config=config(changed, config_facts(origin="preset"), binding)))
    assert finding.severity is (Severity.ERROR if binding else Severity.WARNING)
    assert observed in finding.observed and expected in finding.expected


def keys_only(**fields: Any) -> Any:
    """What `expect:` with a few keys comes to."""
    nothing = {"window": None, "layer_kinds": None, "rope": {}, "eps": None, "hidden_size": None}
    return replace(config_facts(origin="expect"), **{**nothing, **fields})


DEMANDED = {
    "window": (sliding_window, keys_only(window=Claim("sliding_window", 512))),
    "switched off": (sliding_window, keys_only(window_switch=Claim("use_sliding_window", False))),
    "kinds": (layer_pattern, keys_only(layer_kinds=(FULL, SLIDING))),
    "number of layers": (layer_pattern, keys_only(layer_kinds=(SLIDING, FULL, SLIDING))),
    "theta": (rope_theta, keys_only(rope={SLIDING: RopeClaim("rope_theta", 5e5, "")})),
    "part": (rope_theta, keys_only(rope={SLIDING: RopeClaim("x", None, "", {"partial_rotary_factor": 0.5})})),
    "eps": (rms_norm_eps, keys_only(eps=Claim("rms_norm_eps", 1e-3))),
}


@pytest.mark.parametrize("name", DEMANDED)
@pytest.mark.parametrize("static", [True, False])
def test_every_single_key_that_is_demanded_is_compared(name: str, static: bool) -> None:
    check, demanded = DEMANDED[name]
    facts = None if static else model_facts()
    finding = only(run_check(check, config=config(expected=demanded), facts=facts))
    assert finding.severity is Severity.ERROR and "expect" in finding.expected


def test_a_demand_on_a_model_that_has_no_such_thing() -> None:
    bare = replace(config_facts(origin="loaded config"), window=None, rope={}, layer_kinds=(FULL, FULL), pattern=None)
    facts = replace(model_facts(), loaded=bare, layers=tuple(replace(x, kind=FULL) for x in model_facts().layers))
    for name in ("window", "kinds", "theta"):
        check, demanded = DEMANDED[name]
        published = replace(bare, origin="published config.json", layer_kinds=None)
        only(run_check(check, config=config(published, demanded), facts=facts))
        assert run_check(check, config=config(published, demanded)).outcome is Outcome.SKIPPED


def test_a_skeleton_is_held_against_the_kinds_that_it_keeps() -> None:
    published = replace(config_facts(), layer_kinds=None)
    for kinds, outcome in (((SLIDING, FULL) * 9, Outcome.PASS), ((SLIDING,) * 18, Outcome.FAIL)):
        expected = config(published, keys_only(layer_kinds=kinds))
        assert run_check(layer_pattern, config=expected, facts=model_facts()).outcome is outcome


def test_a_gguf_rounding_of_epsilon_is_no_difference() -> None:
    rounded = config_facts(eps=9.999999974752427e-07)
    assert run_check(rms_norm_eps, config=config(rounded, config_facts())).outcome is Outcome.PASS


# --- sliding-window --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["8", 0, -1, 8.0, True, None])
def test_a_window_that_is_none(value: object) -> None:
    facts = config_facts()
    finding = only(run_check(sliding_window, config=config(replace(facts, window=Claim("sliding_window", value)))))
    assert finding.severity is Severity.ERROR and repr(value) in finding.observed


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (config_facts(window_switch=Claim("use_sliding_window", False)), "switched off by use_sliding_window=false"),
        (config_facts(kinds=(FULL, FULL)), "the file names no sliding window"),
        (replace(config_facts(layer_kinds=None), window=None), "the file names no sliding window"),
    ],
)
def test_no_window_to_examine(facts: Any, reason: str) -> None:
    result = run_check(sliding_window, config=config(facts))
    assert (result.outcome, result.reason) == (Outcome.NOT_APPLICABLE, reason)


def test_a_window_changed_in_the_loaded_config() -> None:
    loaded = model_facts(config_facts(origin="loaded config", window=4), layers=model_facts().layers)
    finding = only(run_check(sliding_window, config=config(), facts=loaded))
    assert finding.observed == "loaded 4" and finding.where.layers == (0,)
    assert finding.expected == "8 everywhere (sliding_window in published config.json)"


def test_a_window_that_loading_loses() -> None:
    lost = config_facts(origin="loaded config", window=None, kinds=(FULL, FULL))
    finding = only(run_check(sliding_window, config=config(), facts=model_facts(lost)))
    assert finding.title == "the published window is lost on loading"


def test_one_module_with_a_window_of_its_own() -> None:
    healthy = model_facts(config_facts(kinds=(SLIDING, SLIDING, FULL)))
    odd = replace(healthy.layers[1], window_attributes={"sliding_window": 7})
    facts = replace(healthy, layers=(healthy.layers[0], odd, healthy.layers[2]))
    finding = only(run_check(sliding_window, config=config(healthy.loaded), facts=facts))
    assert finding.where.layers == (1,) and "modules 7" in finding.observed


@pytest.mark.parametrize("real_window", [7, 9])
def test_masks_that_allow_one_key_too_few_or_too_many(real_window: int) -> None:
    sick = replace(one_pass(prompt=12, window=real_window), window=8)
    finding = only(run_check(sliding_window, config=config(), facts=model_facts(), trace=trace(sick)))
    assert f"layer 0 reads {real_window} keys where 8 are due" in finding.observed


def test_a_step_that_reaches_too_far_while_the_prefill_is_right() -> None:
    wide = one_pass(prompt=12, steps=2, kinds=(FULL, FULL)).forwards[-1]
    sick = replace(LONG, forwards=(*LONG.forwards[:1], wide))
    finding = only(run_check(sliding_window, config=config(), facts=model_facts(), trace=trace(sick)))
    assert "layer 0 reads 14 keys where 8 are due" in finding.observed


def test_what_only_the_measurement_shows_stands_at_the_masks_gate() -> None:
    """So that a cache which misreports its length, at an earlier gate, explains it."""
    wide = one_pass(prompt=12, steps=2, kinds=(FULL, FULL)).forwards[-1]
    sick = replace(LONG, forwards=(*LONG.forwards[:1], wide))
    finding = only(run_check(sliding_window, config=config(), facts=model_facts(), trace=trace(sick)))
    assert (finding.gate, finding.standing, finding.where.passes) == ("mask", False, (sick.name,))
    halved = model_facts(config_facts(origin="loaded config", window=4))
    finding = only(run_check(sliding_window, config=config(), facts=halved, trace=trace(sick)))
    assert (finding.gate, finding.standing) == ("", True)


def test_passes_within_the_window_prove_nothing() -> None:
    short = one_pass(prompt=3, steps=2)
    result = run_check(sliding_window, config=config(), facts=model_facts(), trace=trace(short))
    assert result.examined is not None and "not measured" in result.examined.sentence


def test_without_a_mask_everything_handed_over_is_read() -> None:
    prefill = LONG.forwards[0]
    bare = replace(prefill, calls=tuple(kernel_call(layer, None, 1, 12, 12) for layer in (0, 1)))
    sick = replace(LONG, forwards=(bare,))
    finding = only(run_check(sliding_window, config=config(), facts=model_facts(), trace=trace(sick)))
    assert finding.where.layers == (0,) and "reads 12 keys where 8" in finding.observed


def test_a_flash_kernel_slides_by_its_window_argument() -> None:
    calls = tuple(
        kernel_call(layer, None, 1, 12, 12, kernel="flash_attention_2", window_argument=window)
        for layer, window in enumerate((8, None))
    )
    flash = replace(LONG, forwards=(replace(LONG.forwards[0], calls=calls),))
    result = run_check(sliding_window, config=config(), facts=model_facts(), trace=trace(flash))
    assert result.findings == ()
    assert result.examined is not None and result.examined.sentence.endswith("measured in 1 layer")


def test_a_bidirectional_model_keeps_half_of_the_published_width_each_way() -> None:
    written = config_facts(causal=False)
    loaded = model_facts(config_facts(origin="loaded config", window=5, causal=False))
    assert run_check(sliding_window, config=config(written), facts=loaded).outcome is Outcome.PASS
    wrong = model_facts(config_facts(origin="loaded config", causal=False))
    assert "5 everywhere" in only(run_check(sliding_window, config=config(written), facts=wrong)).expected


def test_a_bidirectional_gemma_2_keeps_the_published_window() -> None:
    """As in PaliGemma 2: its configuration class halves nothing."""
    written = config_facts(causal=False, family="gemma2")
    loaded = model_facts(config_facts(origin="loaded config", causal=False, family="gemma2"))
    assert run_check(sliding_window, config=config(written), facts=loaded).outcome is Outcome.PASS


def test_a_bidirectional_model_in_causal_modules() -> None:
    finding = only(run_check(sliding_window, config=config(config_facts(causal=False)), facts=model_facts()))
    assert "looks back only" in finding.title


# --- layer-pattern ---------------------------------------------------------------------------------------------------


def test_layer_types_of_the_wrong_length() -> None:
    finding = only(run_check(layer_pattern, config=config(config_facts(layers=3))))
    assert finding.observed.startswith("2 entries") and finding.expected.startswith("3")


def test_kinds_that_no_file_names() -> None:
    unwritten = config_facts(layer_kinds=None, pattern=None)
    result = run_check(layer_pattern, config=config(unwritten))
    assert (result.outcome, result.reason) == (Outcome.NOT_APPLICABLE, "the file names no kinds of layers")
    evidence = {"config": config(unwritten), "facts": model_facts(), "drift": config_drift(), "trace": trace(LONG)}
    result = run_check(layer_pattern, **evidence)
    assert result.examined is not None and result.examined.sentence == "1 sliding, 1 full loaded = measured in 2 layers"


def test_a_pattern_that_the_class_does_not_read() -> None:
    evidence = {"config": config(), "facts": model_facts(config_facts(kinds=(SLIDING, SLIDING)))}
    finding = only(run_check(layer_pattern, **evidence, drift=config_drift((SLIDING, SLIDING))))
    assert (finding.severity, finding.standing) == (Severity.ERROR, True)
    assert finding.observed == "layer 1 sliding_attention loaded"
    assert finding.expected == "full_attention (layer_types in published config.json)"


def test_a_running_model_with_other_kinds_than_its_class_would_give_it() -> None:
    evidence = {"config": config(), "facts": model_facts(config_facts(kinds=(FULL, FULL)))}
    finding = only(run_check(layer_pattern, **evidence, drift=config_drift()))
    assert finding.where.layers == (0,) and finding.observed == "layer 0 full_attention in the running model"


def test_a_skeleton_has_the_kinds_of_the_layers_that_it_keeps() -> None:
    kinds = (SLIDING, SLIDING, FULL) * 4
    drift = config_drift(kinds, kept=(0, 2))
    evidence = {"config": config(config_facts(kinds=kinds)), "facts": model_facts(), "drift": drift}
    assert run_check(layer_pattern, **evidence).outcome is Outcome.PASS
    other = replace(drift, kept=(0, 1))
    only(run_check(layer_pattern, **{**evidence, "drift": other}))


def test_a_window_on_a_full_layer() -> None:
    sick = one_pass(prompt=12, kinds=(SLIDING, SLIDING))
    finding = only(run_check(layer_pattern, config=config(), facts=model_facts(), trace=trace(sick)))
    assert finding.where.layers == (1,) and finding.expected.startswith("12 keys")


ON = Claim("use_sliding_window", True)


@pytest.mark.parametrize("static", [True, False])
def test_a_window_that_is_switched_on_and_slides_nowhere(static: bool) -> None:
    """As in qwen2 files with max_window_layers at or above the number of layers (transformers issue 40126)."""
    full = {"kinds": (FULL, FULL), "window_switch": ON, "pattern": Claim("max_window_layers", 28)}
    published = config_facts(**full)
    facts = None if static else model_facts(config_facts(origin="loaded config", **full))
    result = run_check(layer_pattern, config=config(published), facts=facts)
    finding = only(result)
    assert (result.outcome, finding.severity) == (Outcome.FAIL, Severity.WARNING)
    assert "all layers are full by max_window_layers" in finding.observed


@pytest.mark.parametrize(
    "changes",
    [
        {"window_switch": Claim("use_sliding_window", False)},
        {"window_switch": None},
        {"window_switch": ON, "window": None},
        {"window_switch": ON, "kinds": (FULL, SLIDING)},
    ],
)
def test_a_switch_that_keeps_its_word(changes: dict[str, Any]) -> None:
    published = config_facts(**{"kinds": (FULL, FULL), **changes})
    assert run_check(layer_pattern, config=config(published)).findings == ()


# --- rope-theta ------------------------------------------------------------------------------------------------------


def test_live_frequencies_of_another_theta_than_the_config_shows() -> None:
    healthy = model_facts()
    swapped = tuple(replace(one, values=healthy.rotary[1].values) for one in healthy.rotary)
    finding = only(run_check(rope_theta, config=config(), facts=replace(healthy, rotary=swapped)))
    assert finding.where.layers == (0,)
    assert "as theta 1,000,000" in finding.observed and "theta 10,000" in finding.expected


def test_a_loaded_theta_that_is_not_the_published_one() -> None:
    loaded = model_facts(config_facts(origin="loaded config", thetas=(1e4, 1e4)))
    finding = only(run_check(rope_theta, config=config(), facts=loaded))
    assert finding.where.layers == (1,) and finding.observed.startswith("loaded theta 10,000")


def test_a_layer_that_receives_the_rotation_of_the_other_kind() -> None:
    healthy = trace(LONG)
    swapped = replace(healthy, rotations=(replace(healthy.rotations[1], layer=0), healthy.rotations[1]))
    finding = only(run_check(rope_theta, config=config(), facts=model_facts(), trace=swapped))
    assert finding.where.layers == (0,) and finding.observed.startswith("layer 0 turns pair")


def test_cos_and_sin_of_the_wrong_length() -> None:
    healthy = trace(LONG)
    long = replace(healthy, rotations=tuple(replace(one, scaling=1.2) for one in healthy.rotations))
    findings = run_check(rope_theta, config=config(), facts=model_facts(), trace=long).findings
    assert [one.where.layers for one in findings] == [(0,), (1,)]
    assert "scaled by 1.2, not 1" in findings[0].observed


def test_cos_and_sin_in_the_layout_of_another_family() -> None:
    healthy = trace(LONG)
    exact = replace(healthy, rotations=tuple(replace(one, distortion=3e-8) for one in healthy.rotations))
    assert run_check(rope_theta, config=config(), facts=model_facts(), trace=exact).outcome is Outcome.PASS
    mistaken = replace(healthy, rotations=(replace(healthy.rotations[0], distortion=0.46), healthy.rotations[1]))
    finding = only(run_check(rope_theta, config=config(), facts=model_facts(), trace=mistaken))
    assert finding.where.layers == (0,) and "change lengths by up to 46%" in finding.observed


def test_frequencies_in_half_precision_are_compared_at_that_precision() -> None:
    healthy = model_facts()
    rounded = tuple(replace(one, values=frozen(one.values * (1 + 0.003)), dtype="bfloat16") for one in healthy.rotary)
    result = run_check(rope_theta, config=config(), facts=replace(healthy, rotary=rounded))
    assert result.outcome is Outcome.PASS
    assert result.examined is not None and result.examined.sentence.endswith("(kept in bfloat16)")


def test_layers_that_share_one_theta_are_one_finding() -> None:
    facts = config_facts(rope={"": RopeClaim("rope_theta", 1e4)})
    healthy = model_facts(facts)
    assert run_check(rope_theta, config=config(facts), facts=healthy).outcome is Outcome.PASS
    slowed = replace(healthy.rotary[0], values=frozen(healthy.rotary[0].values / 8))
    finding = only(run_check(rope_theta, config=config(facts), facts=replace(healthy, rotary=(slowed,))))
    assert finding.where.layers == (0, 1)


def test_turning_pairs_that_should_stand_still() -> None:
    claim = RopeClaim("rope_parameters.full_attention", 1e6, "proportional", {"partial_rotary_factor": 0.5})
    facts = config_facts(rope={FULL: claim}, kinds=(FULL,))
    healthy = model_facts(facts)
    assert run_check(rope_theta, config=config(facts), facts=healthy).outcome is Outcome.PASS
    turning = replace(healthy.rotary[0], values=frozen(np.maximum(healthy.rotary[0].values, 1e-3)))
    only(run_check(rope_theta, config=config(facts), facts=replace(healthy, rotary=(turning,))))


def test_a_sparse_file_is_completed_by_the_loaded_config() -> None:
    sparse = config_facts(rope={FULL: RopeClaim("rope_scaling", None, "linear", {"factor": 8.0})})
    loaded = config_facts(
        rope={
            FULL: RopeClaim("rope_parameters.full_attention", 1e6, "linear", {"factor": 8.0}),
            SLIDING: RopeClaim("rope_parameters.sliding_attention", 1e4),
        }
    )
    assert run_check(rope_theta, config=config(sparse), facts=model_facts(loaded)).outcome is Outcome.PASS
    dropped = replace(loaded, rope={**loaded.rope, FULL: RopeClaim("rope_parameters.full_attention", 1e6)})
    assert "factor 8.0" in only(run_check(rope_theta, config=config(sparse), facts=model_facts(dropped))).expected


def test_a_scaling_that_this_tool_does_not_know_is_not_judged() -> None:
    facts = config_facts(rope={"": RopeClaim("rope_scaling", 1e4, "spiral")})
    healthy = model_facts()
    result = run_check(rope_theta, config=config(facts), facts=replace(healthy, loaded=facts))
    assert result.outcome is Outcome.SKIPPED and "unknown rope type 'spiral'" in result.reason


@pytest.mark.parametrize("theta", [0.0, -1.0, float("nan"), float("inf"), 1e300])
@pytest.mark.parametrize("static", [True, False])
def test_a_theta_that_is_none(theta: float, static: bool, recwarn: pytest.WarningsRecorder) -> None:
    facts = config_facts(rope={"": RopeClaim("rope_theta", theta)})
    finding = only(run_check(rope_theta, config=config(facts), facts=None if static else model_facts()))
    assert finding.title == "rope_theta is no usable theta" and len(finding.observed) < 60
    assert not recwarn.list


@pytest.mark.parametrize("value", ["x", [1], True, 10**400])
def test_a_theta_that_is_no_number_is_read_and_named(value: object) -> None:
    for keys in ({"rope_theta": value}, {"rope_parameters": {"rope_theta": value, "rope_type": "default"}}):
        written = published.read({"model_type": "llama", **keys}, "published config.json")
        finding = only(run_check(rope_theta, config=config(written)))
        assert "no usable theta" in finding.title and len(finding.observed) < 90


@pytest.mark.parametrize(
    "terms", [{"factor": 0}, {"factor": float("nan")}, {"factor": "x"}, {"factor": 8.0, "partial_rotary_factor": "x"}]
)
def test_scalings_that_cannot_be_computed_are_no_crash(terms: dict[str, Any], recwarn: pytest.WarningsRecorder) -> None:
    facts = config_facts(rope={"": RopeClaim("rope_scaling", 1e4, "linear", terms)})
    result = run_check(rope_theta, config=config(facts), facts=replace(model_facts(), loaded=facts))
    assert result.outcome is Outcome.SKIPPED and not recwarn.list


def test_frequencies_that_are_not_numbers_are_not_right() -> None:
    healthy = model_facts()
    nothing = tuple(replace(one, values=frozen(one.values * np.nan)) for one in healthy.rotary)
    findings = run_check(rope_theta, config=config(), facts=replace(healthy, rotary=nothing)).findings
    assert len(findings) == 2


LONG_AND_SHORT = {
    "original_max_position_embeddings": 6,
    "factor": 4.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [2.0, 3.0, 4.0, 5.0],
}


@pytest.mark.parametrize("scaling", [("dynamic", {"factor": 4.0}), ("longrope", LONG_AND_SHORT)])
def test_frequencies_that_follow_the_length_are_compared_at_the_length_that_was_fed(scaling: Any) -> None:
    claim = RopeClaim("rope_scaling", 1e4, *scaling)
    facts = config_facts(rope={"": claim}, max_positions=6)
    at_first, _ = inverse_frequencies(claim, 8, 6)
    fed, factor = inverse_frequencies(claim, 8, 6, 12)
    assert not np.allclose(at_first, fed)
    rotary = (RotaryBuffer("rotary_emb.inv_freq", "", at_first, "float32"),)
    loaded = model_facts(facts, rotary=rotary)
    turned = tuple(LayerRotation(layer, fed, factor, "float32") for layer in (0, 1))
    healthy = replace(trace(LONG), rotations=turned)
    assert run_check(rope_theta, config=config(facts), facts=loaded, trace=healthy).outcome is Outcome.PASS
    stuck = replace(healthy, rotations=tuple(replace(one, frequencies=at_first) for one in turned))
    only(run_check(rope_theta, config=config(facts), facts=loaded, trace=stuck))


# --- rms-norm-eps ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, -1e-6, "1e-06", True, None, float("nan"), float("inf")])
def test_an_epsilon_that_is_none(value: object) -> None:
    facts = replace(config_facts(), eps=Claim("rms_norm_eps", value))
    assert repr(value) in only(run_check(rms_norm_eps, config=config(facts))).observed


def test_one_norm_whose_attribute_is_right_and_whose_epsilon_is_not() -> None:
    healthy = model_facts()
    deaf = replace(healthy.norms[1], measured=1e-3)
    finding = only(run_check(rms_norm_eps, config=config(), facts=replace(healthy, norms=(healthy.norms[0], deaf))))
    assert finding.where.layers == (1,)
    assert finding.observed == "0.001 acting in 1 norm, layers.1.input_layernorm (float32)"


def test_an_epsilon_changed_before_the_modules_were_built() -> None:
    finding = only(run_check(rms_norm_eps, config=config(), facts=model_facts(config_facts(eps=1e-3))))
    assert finding.where.layers == ()
    assert "loaded 0.001" in finding.observed and "stored in 2 norms" in finding.observed


def test_an_error_within_the_rounding_of_the_dtype_is_none() -> None:
    healthy = model_facts()
    coarse = tuple(replace(one, measured=1.02e-6, dtype="bfloat16", tolerance=0.06) for one in healthy.norms)
    assert run_check(rms_norm_eps, config=config(), facts=replace(healthy, norms=coarse)).outcome is Outcome.PASS


def test_norms_that_could_not_be_looked_at() -> None:
    blind = tuple(replace(one, attribute=None, measured=None) for one in model_facts().norms)
    assert run_check(rms_norm_eps, config=config(), facts=model_facts(norms=blind)).outcome is Outcome.SKIPPED


def test_norms_that_were_not_measured_are_said_and_no_fault() -> None:
    healthy = model_facts()
    blind = replace(healthy.norms[1], measured=None)
    result = run_check(rms_norm_eps, config=config(), facts=replace(healthy, norms=(healthy.norms[0], blind)))
    assert result.outcome is Outcome.PASS and result.examined is not None
    assert result.examined.sentence.endswith("in 2 norms, measured in 1 (float32), not measured in 1")


@pytest.mark.parametrize("inside", ["self_attn.q_a_layernorm", "self_attn.indexer.k_norm", "linear_attn.norm"])
def test_norms_with_an_epsilon_of_the_class_s_own_are_left_out_and_counted(inside: str) -> None:
    healthy = model_facts(config_facts(eps=1e-5))
    own = replace(healthy.norms[0], name=f"layers.0.{inside}", attribute=1e-6, measured=1e-6)
    facts = replace(healthy, norms=(*healthy.norms, own))
    result = run_check(rms_norm_eps, config=config(config_facts(eps=1e-5)), facts=facts)
    assert result.outcome is Outcome.PASS and result.examined is not None
    assert (
        "in 2 norms" in result.examined.sentence and "1 with an epsilon of the class's own" in result.examined.sentence
    )


def test_a_class_default_that_no_norm_takes() -> None:
    loaded = replace(config_facts(origin="loaded config"), eps=Claim("layer_norm_eps", 1e-12))
    torchs = tuple(replace(one, attribute=1e-5, measured=1e-5) for one in model_facts().norms)
    facts = replace(model_facts(), loaded=loaded, norms=torchs)
    silent = replace(config_facts(), eps=None)
    assert run_check(rms_norm_eps, config=config(silent), facts=facts).outcome is Outcome.SKIPPED
    written = replace(config_facts(), eps=Claim("layer_norm_eps", 1e-12))
    only(run_check(rms_norm_eps, config=config(written), facts=facts))


# --- sample configurations -------------------------------------------------------------------------------------------


def statically(path: Path) -> dict[str, CheckResult]:
    """The checks on a run file's subject with its overrides, against what it expects."""
    keys = yaml.safe_load(path.read_text())
    subject = lay_over(presets.load(keys["subject"]), keys.get("overrides", {}))
    wanted = keys.get("expect")
    expected = published.read(presets.load(wanted), f"preset {wanted}") if wanted else None
    facts = config(published.read(subject, "published config.json"), expected)
    return {result.check: result for result in (run_check(check, config=facts) for check in CHECKS)}


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_healthy_samples_are_healthy(path: Path) -> None:
    assert not [finding for result in statically(path).values() for finding in result.findings]


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("faulty/*.yaml")), ids=lambda path: path.stem)
def test_faulty_samples_fail_the_check_that_they_are_named_after_and_no_other(path: Path) -> None:
    failing = [check for check, result in statically(path).items() if result.outcome is Outcome.FAIL]
    assert len(failing) == 1 and path.stem.startswith(failing[0])
    assert path.read_text().startswith("# ")
