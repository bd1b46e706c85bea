"""What parity checks say of a route, on evidence made by hand: no torch, and routes that no machine here offers."""

from __future__ import annotations

import typing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemma_doctor.check import Check
from gemma_doctor.checks.cache.cache_parity import cache_parity
from gemma_doctor.evidence import CHOICES, SCORE, Crash, RouteRun, frozen
from gemma_doctor.finding import CheckResult, Finding, Outcome, Severity
from gemma_doctor.oracle import FINDING_FLOORS
from gemma_doctor.registry import built_in
from gemma_doctor.routes import all_routes
from gemma_doctor.testing import route_case, route_run, run_check

FLOOR = 1e-4
CRASH = Crash("IndexError", "index 8 is out of bounds", step=1, total=8, layer=3)
PARITY = [one for one in built_in() if one.routes and one.id.endswith("-parity")]


def judged(route: RouteRun) -> CheckResult:
    return run_check(cache_parity, route=route)


def only_finding(route: RouteRun) -> Finding:
    (finding,) = judged(route).findings
    return finding


# --- differences -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("floors", "outcome"), [(0, "pass"), (1, "pass"), (4, "pass"), (4.01, "fail"), (1e4, "fail")])
def test_a_difference_needs_more_than_four_floors(floors: float, outcome: str) -> None:
    assert judged(route_run(route_case(0.0, floors * FLOOR, floor=FLOOR))).outcome.value == outcome


def test_what_was_compared_is_said() -> None:
    examined = judged(route_run(route_case(0.0, FLOOR), route_case(2 * FLOOR))).examined
    assert examined is not None
    assert (examined.count, examined.sentence) == (3, "3 positions of 2 texts, worst 2 noise floors")


def test_a_difference_is_placed_and_measured() -> None:
    flips = frozen(np.array([False, True, False]))
    sick = route_case(0.0, 0.5, 2.0, flips=flips, first_layer=3, first_layer_at=7, pass_name="prompt W-1")
    finding = only_finding(route_run(route_case(0.0), sick))
    assert finding.severity is Severity.ERROR
    assert finding.where.boundary == (
        "prompt W-1, first for token 8, total length 8 (= W); layer 3 is the first to differ, at token 7"
    )
    assert (finding.where.passes, finding.where.route) == (("prompt W-1",), "cached")
    assert finding.observed == "logits off by up to 2"
    assert finding.expected == "at most 0.0004, 4 noise floors"
    assert finding.effect == (
        "off by 2 (noise 0.0001); 1 of 3 top tokens change, the first at 8 in prompt W-1; 1 of 2 texts"
    )
    assert finding.against_reference


def test_a_model_without_a_window_has_no_edge_to_name() -> None:
    assert "first for token 7, total length 7" in only_finding(route_run(route_case(1.0, window=None))).where.boundary
    assert "W" not in only_finding(route_run(route_case(1.0, window=None, name="prompt of 7"))).where.boundary


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_is_no_small_difference(value: float) -> None:
    finding = only_finding(route_run(route_case(value, 0.0, finite=False)))
    assert finding.observed == "NaN or infinity among the logits"
    assert finding.effect.startswith("not finite")


def test_logits_that_overflow_are_found_even_where_the_floor_is_no_number() -> None:
    assert judged(route_run(route_case(0.0, floor=float("nan"), finite=False))).outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("compared", "title", "observed"),
    [
        (CHOICES, "other tokens than", "a chosen token lies 0.5 below the best one"),
        (SCORE, "other continuations than", "log-probability off by 0.5"),
    ],
)
def test_tokens_and_scores_are_called_by_their_names(compared: str, title: str, observed: str) -> None:
    finding = only_finding(route_run(route_case(0.5, compared=compared)))
    assert title in finding.title
    assert finding.observed == observed
    assert judged(route_run(route_case(FLOOR, compared=compared))).outcome is Outcome.PASS


def test_what_is_right_meanwhile_is_said() -> None:
    sick = route_run(route_case(1.0), right=("use_cache=False",))
    assert only_finding(sick).meanwhile == "use_cache=False is right (measured)"
    two = only_finding(replace(sick, right=("attn_implementation='eager'", "use_cache=False")))
    assert two.meanwhile == "attn_implementation='eager' and use_cache=False are right (measured)"
    assert only_finding(replace(sick, right=())).meanwhile == ""


@pytest.mark.parametrize("case", [route_case(1.0), route_case(crash=CRASH)], ids=["differs", "crashes"])
def test_a_route_that_nobody_takes_is_a_warning_with_its_condition(case: Any) -> None:
    finding = only_finding(route_run(case, route_case(0.0), declared=False))
    assert finding.severity is Severity.WARNING
    assert finding.title.endswith("(if you generate with a cache)")
    assert only_finding(route_run(case, route_case(0.0))).severity is Severity.ERROR


# --- what ended ------------------------------------------------------------------------------------------------------


def test_a_crash_is_an_error() -> None:
    result = judged(route_run(route_case(crash=CRASH), route_case(0.0)))
    (finding,) = result.findings
    assert finding.severity is Severity.ERROR
    assert finding.where.boundary == "prompt W-1, total length 8 (= W), layer 3"
    assert finding.observed == "IndexError: index 8 is out of bounds"
    assert finding.effect == "1 of 2 texts end in it"
    assert result.outcome is Outcome.FAIL


def test_what_could_not_be_built_has_no_length() -> None:
    unbuilt = replace(CRASH, step=0, total=0, layer=None)
    finding = only_finding(route_run(route_case(name="before any forward", crash=unbuilt), route_case(0.0)))
    assert finding.where.boundary == "before any forward, outside of any layer"


def test_a_crash_of_a_recorded_pass_is_left_to_long_generate() -> None:
    crashed = route_case(crash=CRASH, pass_name="long generate")
    assert judged(route_run(crashed, route_case(0.0))).findings == ()
    alone = judged(route_run(crashed))
    assert (alone.outcome, alone.reason) == (Outcome.SKIPPED, "nothing could be compared: it crashed each time")


def test_a_route_that_crashes_each_time_has_failed() -> None:
    assert judged(route_run(route_case(crash=CRASH))).outcome is Outcome.FAIL


def test_a_refusal_is_a_note() -> None:
    refusal = Crash("ValueError", "assisted generation is not supported", 0, 0, None, refused=True)
    result = judged(route_run(route_case(crash=refusal)))
    (finding,) = result.findings
    assert (result.outcome, finding.severity) == (Outcome.NOT_APPLICABLE, Severity.NOTE)
    assert finding.observed == "ValueError: assisted generation is not supported"
    assert "refuse" in result.reason


def test_a_crash_and_a_difference_are_two_findings() -> None:
    findings = judged(route_run(route_case(crash=CRASH), route_case(1.0), route_case(0.0))).findings
    assert [finding.severity for finding in findings] == [Severity.ERROR, Severity.ERROR]


# --- every parity check ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", PARITY, ids=[one.id for one in PARITY])
def test_every_parity_check_judges_its_own_route(one: Check) -> None:
    (need,) = [need for need in one.needs if need.type is RouteRun]
    assert need.of in all_routes()
    function: Any = one.function
    healthy = run_check(function, **{need.parameter: route_run(route=need.of)})
    assert (healthy.outcome, healthy.findings) == (Outcome.PASS, ())
    sick = run_check(function, **{need.parameter: route_run(route_case(2 * FINDING_FLOORS * FLOOR), route=need.of)})
    assert [finding.where.route for finding in sick.findings] == [need.of]


def test_no_two_parity_checks_judge_one_route() -> None:
    judged_routes = [name for one in PARITY for name in one.routes]
    assert len(judged_routes) == len(set(judged_routes))
    assert typing.get_type_hints(cache_parity, include_extras=True)["route"].__metadata__ == ("cached",)
