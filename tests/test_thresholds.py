"""Numbers that were chosen and decide a finding can be set, and each of them acts in both directions."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemma_doctor.check import CheckFunction
from gemma_doctor.checks.cache.cache_parity import cache_parity
from gemma_doctor.checks.cache.decode_parity import decode_parity
from gemma_doctor.checks.generation.degeneration import degeneration
from gemma_doctor.checks.generation.recall import recall
from gemma_doctor.checks.generation.recompilation import recompilation
from gemma_doctor.checks.generation.window_crossing import window_crossing
from gemma_doctor.checks.mask.visible_keys import visible_keys
from gemma_doctor.checks.positions.rope_coverage import rope_coverage
from gemma_doctor.checks.tokens.bos_token import bos_token
from gemma_doctor.checks.tokens.tokenizer_integrity import tokenizer_integrity
from gemma_doctor.cli import main
from gemma_doctor.diagnosis import chosen_checks
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import (
    BosLosses,
    BosUse,
    BosWay,
    Fact,
    Floats,
    Generations,
    Pass,
    RopeEffect,
    Token,
    TokenizerIntegrity,
    frozen,
)
from gemma_doctor.finding import Outcome
from gemma_doctor.registry import built_in
from gemma_doctor.settings import resolve
from gemma_doctor.testing import (
    config,
    config_facts,
    generation,
    long_text,
    one_pass,
    route_case,
    route_run,
    run_check,
    trace,
    with_weight,
)

# every second number is so far above the mean, the others below: a standard error of 0.1 for a spread of 1
SPREAD = np.tile([1.0, -1.0], 50)


def region(more: float, spread: float = 0.0) -> dict[str, Any]:
    """A text whose tokens after the edge cost so much more than in the control, on both routes."""
    text = long_text()
    after = text.regions[1]
    cached = frozen(after.cached + more + spread * SPREAD[:64])
    changed = replace(after, cached=cached, reference=cached)
    return {"text": replace(text, regions=(text.regions[0], changed, text.regions[2]))}


def uncached(apart: float) -> dict[str, Any]:
    """A text one of whose tokens costs so much more with the cache; 2e-4 nats are one noise floor."""
    text = long_text()
    cached = text.regions[2].cached.copy()
    cached[5] += apart
    return {"text": replace(text, regions=(*text.regions[:2], replace(text.regions[2], cached=frozen(cached))))}


def facts(cached: float, reference: float) -> dict[str, Any]:
    """Log-probabilities of one fact; noise is 2e-4."""
    return {"text": long_text(facts=(Fact(128, cached, reference),))}


def rotation(cost: float, spread: float = 0.0) -> dict[str, Any]:
    other = np.full(100, 2.0)
    effect = RopeEffect("theta 1", "theta 2", True, frozen(other + cost + spread * SPREAD), frozen(other), "a text")
    return {"config": replace(config(), base=config_facts()), "effect": effect}


def without_bos(cost: float, spread: float = 0.0) -> dict[str, Any]:
    """Not a Gemma, and nothing says that it needs BOS."""
    once: Floats = np.full(100, 2.5)
    losses = BosLosses(frozen(once + cost + spread * SPREAD), frozen(once), frozen(once), "a text")
    plain = BosWay("tokenizer(text)", 0, (7,))
    return {"bos": BosUse(token=Token(2, "<bos>"), family="llama", said_by="", plain=plain, losses=losses)}


def words(whole: int) -> dict[str, Any]:
    fields: dict[str, Any] = dict.fromkeys(("trips", "shattered", "split", "foreign", "beyond"), ())
    return {
        "seen": TokenizerIntegrity(words=100, whole=whole, markers=1, family="gemma3_text", rows=100, **fields),
    }


def text_of(tokens: list[int], entropy: float | None = None) -> dict[str, Any]:
    """A generation that the reference route contradicts."""
    changes: dict[str, Any] = {}
    if entropy is not None:
        size = len(tokens)
        changes = {"entropy": frozen(np.full(size, entropy)), "reference_entropy": frozen(np.full(size, 1.0))}
    one = generation(tokens, [77, *tokens[1:]], **changes)
    return {"generations": Generations((one,))}


def compiled(*at: int) -> dict[str, Any]:
    """Seven decode steps, those of the tokens 7 to 13."""
    case = route_case(*([0.0] * 8), compiled_at=at)
    return {"route": route_run(case, route="compiled", condition="if you compile")}


def pair(off: float) -> dict[str, Any]:
    """The second token after a prompt of 10 reads otherwise at its decode step than in one forward."""
    scored, prompt = one_pass(14, 0, name="scored 2W", same_tokens_as="prompt 2W"), one_pass(10, 4, name="prompt 2W")
    return {"trace": trace(with_weight(prompt, 2, 0, (0, 1, 0, -1), 0.125 - off), scored)}


def unread(one: Pass, back: int, heads: Any = slice(None)) -> Pass:
    """No weight on keys so far back, in layer 0."""
    for step, forward in enumerate(one.forwards):
        first = forward.first_key(forward.calls[0])
        for row, query in enumerate(range(forward.start, forward.total)):
            if query - back >= first:
                one = with_weight(one, step, 0, (0, heads, row, query - back - first), 0.0)
    return one


LOOP = [9, 8, 7, *([1, 2, 3] * 7)]
OTHER_ORDER = [*range(10, 50), 1, *range(30, 50), 2, *range(10, 30)]
# check, evidence, threshold, a value of it; the finding is there by default, and with that value it is not
SILENCED: list[tuple[CheckFunction, dict[str, Any], str, float]] = [
    (window_crossing, region(1.0), "margin", 1.1),
    (window_crossing, region(1.0, spread=1.0), "standard_errors", 10),
    (window_crossing, uncached(1e-3), "noise_floors", 6),
    (rope_coverage, rotation(0.02), "least_cost", 0.03),
    (rope_coverage, rotation(1.0, spread=1.0), "standard_errors", 11),
    (bos_token, without_bos(0.2), "least_cost", 0.3),
    (bos_token, without_bos(1.0, spread=1.0), "standard_errors", 11),
    (recall, facts(-0.101, -0.1), "noise_floors", 6),
    (recall, facts(-3.0, -0.5), "recalled", 0.7),
    (degeneration, text_of(LOOP), "loop_tokens", 22),
    (degeneration, text_of(OTHER_ORDER), "repeated_share", 1.0),
    (degeneration, text_of(list(range(24)), 0.05), "certain_entropy", 0.04),
    (degeneration, text_of(list(range(24)), 0.05), "reference_entropy", 1.5),
    (recompilation, compiled(7, 11), "settled_steps", 2),
    (decode_parity, pair(5e-3), "tolerance", 1e-2),
    (visible_keys, {"trace": trace(unread(one_pass(16, 4), 7))}, "fewest_weights", 1000),
    (
        visible_keys,
        {"trace": trace(with_weight(unread(one_pass(100, 4), 7), 0, 0, (0, 0, 50, 48), 0.0))},
        "underflow",
        0.0,
    ),
    (tokenizer_integrity, words(80), "whole_words", 0.7),
    (cache_parity, {"route": route_run(route_case(0.0, 6e-4))}, "noise_floors", 7),
]
# the other way round: healthy by default, a finding with that value
MADE_TO_SPEAK: list[tuple[CheckFunction, dict[str, Any], str, float]] = [
    (window_crossing, region(0.2), "margin", 0.1),
    (window_crossing, region(0.4, spread=1.0), "standard_errors", 2),
    (window_crossing, uncached(7e-4), "noise_floors", 3),
    (rope_coverage, rotation(0.008), "least_cost", 0.005),
    (rope_coverage, rotation(0.3, spread=1.0), "standard_errors", 2),
    (bos_token, without_bos(0.08), "least_cost", 0.05),
    (bos_token, without_bos(0.3, spread=1.0), "standard_errors", 2),
    (recall, facts(-0.1007, -0.1), "noise_floors", 3),
    (recall, facts(-3.0, -0.8), "recalled", 0.3),
    (degeneration, text_of([9, 8, 7, *([1] * 12)]), "loop_tokens", 12),
    (degeneration, text_of([*range(60), *range(20)]), "repeated_share", 0.5),
    (degeneration, text_of(list(range(24)), 0.2), "certain_entropy", 0.3),
    (recompilation, compiled(7, 10), "settled_steps", 4),
    (decode_parity, pair(5e-4), "tolerance", 1e-4),
    (visible_keys, {"trace": trace(unread(one_pass(9, 2), 7))}, "fewest_weights", 2),
    (visible_keys, {"trace": trace(unread(unread(one_pass(16, 4), 7), 3, heads=0))}, "underflow", 0.5),
    (tokenizer_integrity, words(95), "whole_words", 0.99),
    (cache_parity, {"route": route_run(route_case(0.0, 3e-4))}, "noise_floors", 2),
]


def named(cases: list[tuple[CheckFunction, dict[str, Any], str, float]]) -> list[Any]:
    return [pytest.param(*case, id=f"{case[0].__name__}-{case[2]}") for case in cases]


@pytest.mark.parametrize(("check", "evidence", "threshold", "value"), named(SILENCED))
def test_one_that_is_raised_silences(
    check: CheckFunction, evidence: dict[str, Any], threshold: str, value: float
) -> None:
    assert run_check(check, **evidence).outcome is Outcome.FAIL
    assert run_check(check, **evidence, **{threshold: value}).outcome is not Outcome.FAIL


@pytest.mark.parametrize(("check", "evidence", "threshold", "value"), named(MADE_TO_SPEAK))
def test_one_that_is_lowered_makes_it_speak(
    check: CheckFunction, evidence: dict[str, Any], threshold: str, value: float
) -> None:
    assert run_check(check, **evidence).outcome is not Outcome.FAIL
    assert run_check(check, **evidence, **{threshold: value}).outcome is Outcome.FAIL


def test_every_threshold_of_every_check_is_tried() -> None:
    tried = {(function.__name__.replace("_", "-"), name) for function, _, name, _ in SILENCED}
    there = {(one.id, name) for one in built_in() for name in one.thresholds if name != "noise_floors"}
    assert there <= tried


def test_every_parity_check_of_a_route_has_one() -> None:
    assert {one.id for one in built_in() if one.id.endswith("-parity") and one.routes} == {
        one.id for one in built_in() if one.routes and one.thresholds == {"noise_floors": 4}
    }


@pytest.mark.parametrize("check", [one for one in built_in() if one.thresholds], ids=lambda one: one.id)
def test_every_threshold_is_named_in_the_known_limits(check: Any) -> None:
    documentation = sys.modules[check.function.__module__].__doc__ or ""
    limits = documentation.split("Known limits")[1].split("References")[0]
    assert [name for name in check.thresholds if f"`{name}`" not in limits] == []


# --- what a user sees ------------------------------------------------------------------------------------------------


def test_explain_prints_them_with_their_usual_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "bos-token"]) == 0
    assert capsys.readouterr().out.endswith("    least_cost: 0.1\n    standard_errors: 4\n")


def test_explain_says_nothing_of_them_where_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "mask-shape"]) == 0
    assert "Thresholds" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("window-crosing: {margin: 1}", "there is no check 'window-crosing'; did you mean window-crossing?"),
        ("window-crossing: {margn: 1}", "window-crossing has no threshold 'margn'; did you mean margin?"),
        ("mask-shape: {margin: 1}", "mask-shape has no threshold 'margin'"),
    ],
)
def test_a_run_file_with_an_unknown_one_is_refused(tmp_path: Path, yaml: str, message: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(f"thresholds: {{{yaml}}}", encoding="utf-8")
    with pytest.raises(DoctorError, match="thresholds:") as caught:
        chosen_checks(resolve({"config": str(path)}, {}))
    assert message in caught.value.message
