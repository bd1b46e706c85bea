"""The list of public faults, whom it concerns, and what a run makes of it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemma_doctor import advisories, cli, presets, published, registry, routes
from gemma_doctor.check import judge
from gemma_doctor.checks.cache.cache_growth import cache_growth
from gemma_doctor.checks.cache.past_key_length import past_key_length
from gemma_doctor.checks.config.known_release import known_release
from gemma_doctor.checks.config.sliding_window import sliding_window
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import (
    EMPTY_SLOT,
    LOGITS,
    Advisories,
    Advisory,
    CacheLayer,
    Concern,
    Crash,
    RouteCase,
    RouteRun,
    frozen,
)
from gemma_doctor.finding import CheckResult, Examined, Finding, Location, Outcome, Severity
from gemma_doctor.parity import parity
from gemma_doctor.recognition import fits, recognised
from gemma_doctor.testing import config, config_facts, model_facts, one_pass, run_check, trace, with_call, with_forward

ROOT = Path(__file__).parent.parent
BY_ID = {one.advisory.id: one for one in advisories.entries()}
QUICK = routes.declared((), "quick")

ENTRY = """
- id: one-1
  title: something is wrong
  releases: ">=4.50,<4.52"
  symptom: wrong logits
  fix: another release
  verified: measured in 4.51.3
  untried: this is a test
"""


def written(**changes: str) -> str:
    """The entry with other lines, or one line more."""
    lines = [line for line in ENTRY.splitlines() if line.strip().split(":")[0] not in changes]
    return "\n".join([*lines, *(f"  {key.replace('_', '-')}: {value}" for key, value in changes.items())])


def advisory(**changes: Any) -> Advisory:
    return replace(advisories.read(ENTRY)[0].advisory, **changes)


# --- the file --------------------------------------------------------------------------------------------------------


def test_every_entry_is_valid_and_names_checks_that_exist() -> None:
    assert len(BY_ID) >= 15
    advisories.require_checks(one.id for one in registry.built_in())


def test_every_trigger_is_sick_in_its_range_and_well_outside() -> None:
    for entry in BY_ID.values():
        if entry.trigger is not None:
            assert advisories.affects(entry.advisory, entry.trigger.sick), entry.advisory.id
            assert not advisories.affects(entry.advisory, entry.trigger.well), entry.advisory.id
            assert entry.trigger.subject in presets.names()
            assert entry.advisory.shown_by
            assert entry.trigger.cause in (*entry.advisory.shown_by, "known-release", "")


def test_an_entry_is_one_line_of_each() -> None:
    for entry in BY_ID.values():
        for text in (entry.advisory.title, entry.advisory.symptom, entry.advisory.fix, entry.advisory.verified):
            assert "\n" not in text and text == text.strip(), entry.advisory.id
        assert not entry.advisory.title.endswith(".")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- [", "no YAML"),
        ("id: one", "it is no list of entries"),
        (ENTRY + ENTRY, "one-1: stands there twice"),
        (written(famlies="[gemma2]"), "one-1: unknown key 'famlies'; did you mean families"),
        (written(releases="4.50 to 4.52"), "one-1: releases is no PEP 440 range"),
        (written(fixed="5.10"), "one-1: fixed is no text: 5.1"),
        (written(symptom='""'), "one-1: lacks symptom"),
        (written(routes="[chached]"), "one-1: there is no route 'chached'; did you mean cached"),
        (written(routes="cached"), "one-1: routes is no list of texts"),
        (written(needs="[slding]"), "one-1: unknown need 'slding'; did you mean sliding"),
        (written(shown_by='{cache-parity: "("}'), "one-1: shown-by has a bad pattern"),
        (written(trigger='{subject: gemma-3-270m, sick: "4.51.3", well: "5.0"}'), "one-1: needs either a trigger"),
        (written(untried='""', trigger="x"), "one-1: needs either a trigger"),
    ],
)
def test_a_wrong_file_is_one_line(text: str, said: str) -> None:
    with pytest.raises(DoctorError) as error:
        advisories.read(text)
    assert error.value.message.startswith("advisories.yaml: ")
    assert said in error.value.message
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ("[]", "trigger is no mapping"),
        ('{subject: gemma-3-270m, sick: "4.51.3"}', "trigger lacks well"),
        ('{subject: gemma-3-270m, sick: "4.51.3", wel: "5.0"}', "unknown key 'wel'; did you mean well"),
        ('{subject: x, sick: "1", well: "2", routes: [none]}', "there is no route 'none'"),
    ],
)
def test_a_wrong_trigger_is_one_line(trigger: str, said: str) -> None:
    lines = [line for line in ENTRY.splitlines() if "untried" not in line]
    with pytest.raises(DoctorError, match=said):
        advisories.read("\n".join([*lines, f"  trigger: {trigger}"]))


def test_a_check_that_is_not_there_is_named() -> None:
    with pytest.raises(DoctorError, match=r"there is no check '[a-z-]+'"):
        advisories.require_checks(["cache-parity"])


# --- whom it concerns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "affected"),
    [
        ("4.49.0", False),
        ("4.50", True),
        ("4.51.3", True),
        ("4.52.0", False),
        ("4.52.0rc1", False),  # counts as the release to come
        ("4.50.0.dev0", True),
        ("4.51.3+local.build", True),
    ],
)
def test_the_edges_of_a_range(release: str, affected: bool) -> None:
    assert advisories.affects(advisory(), release) is affected


def test_what_is_no_version() -> None:
    with pytest.raises(DoctorError, match="'latest' is no version"):
        advisories.affects(advisory(), "latest")


def concerned(release: str | None, preset: str, in_use: frozenset[str] = QUICK, **setting: str) -> dict[str, Concern]:
    facts = published.read(presets.load(preset), "published config.json")
    found = advisories.concerning(release, config(facts), in_use=in_use, **setting)
    assert found.known == len(BY_ID)
    return {one.advisory.id: one for one in found.concerns}


CPU = {"backend": "sdpa", "dtype": "float32", "device": "cpu"}


def test_an_entry_on_a_route_in_use() -> None:
    found = concerned("4.51.3", "gemma-3-270m", **CPU)
    assert found["hybrid-cache-boundary-37574"].in_use
    assert not found["static-cache-not-hybrid-32932"].in_use
    assert concerned("4.51.3", "gemma-3-270m", frozenset({"static-cache"}))["static-cache-not-hybrid-32932"].in_use


@pytest.mark.parametrize(
    ("release", "preset"),
    [
        ("4.52.4", "gemma-3-270m"),
        ("4.51.3", "mistral-7b-v0.1"),
        ("4.51.3", "llama-3.1-8b-instruct"),
        (None, "gemma-2-2b"),
    ],
)
def test_another_release_or_family_is_not_concerned(release: str | None, preset: str) -> None:
    assert "hybrid-cache-boundary-37574" not in concerned(release, preset, **CPU)


def test_what_the_model_must_have() -> None:
    assert "assisted-crop-46629" in concerned("5.12.0", "mistral-7b-v0.1")
    assert "assisted-crop-46629" not in concerned("5.12.0", "llama-3.1-8b-instruct")  # no window
    assert "assisted-crop-46629" not in concerned("5.12.0", "vaultgemma-1b")  # a window that no layer has
    assert "gemma4-keeps-every-key" in concerned("5.5.4", "gemma-4-26B-A4B-it")
    assert "gemma4-keeps-every-key" not in concerned("5.5.4", "gemma-4-E2B-it")
    assert "gemma4-no-cache-45242" in concerned("5.5.0", "gemma-4-E2B-it")
    assert "gemma4-no-cache-45242" not in concerned("5.5.0", "gemma-4-26B-A4B-it")
    assert "embeddinggemma-causal" in concerned("4.51.3", "embeddinggemma-300m")
    assert "embeddinggemma-causal" not in concerned("4.51.3", "gemma-3-270m")


def test_backend_dtype_and_device_that_are_others_or_not_known() -> None:
    assert concerned("5.16.1", "gemma-2-2b", **CPU)["sdpa-drops-softcap-32848"].in_use
    for setting in ({**CPU, "backend": "eager"}, {}):
        concern = concerned("5.16.1", "gemma-2-2b", **setting)["sdpa-drops-softcap-32848"]
        assert (concern.in_use, concern.elsewhere) == (False, ("with sdpa",))
    half = {"backend": "sdpa", "dtype": "float16", "device": "cuda:1"}
    assert concerned("5.24.0", "gemma-3-270m", **half)["gemma3-float16-36822"].in_use  # it is a route as well
    assert not concerned("5.24.0", "gemma-3-270m", **CPU)["gemma3-float16-36822"].in_use
    flash = {**CPU, "backend": "flash_attention_2"}
    assert concerned("4.55.4", "gemma-3-270m", **flash)["flash-window-39408"].in_use
    assert concerned("5.15.1", "gemma-4-E2B-it", **half)["left-padding-nan-47651"].in_use
    assert concerned("5.15.1", "gemma-4-E2B-it", **CPU)["left-padding-nan-47651"].elsewhere == ("on cuda",)


# --- the check -------------------------------------------------------------------------------------------------------


def listed(*concerns: Concern, release: str = "4.51.3") -> Advisories:
    return Advisories(release, 20, concerns)


def test_nothing_known_is_said_in_words() -> None:
    result = run_check(known_release, advisories=listed(release="5.24.0"))
    assert (result.outcome, result.findings) == (Outcome.PASS, ())
    assert result.examined == Examined(20, "transformers 5.24.0: none of 20 known faults concerns this model")


@pytest.mark.parametrize(
    ("concern", "severity", "outcome", "said"),
    [
        (Concern(advisory(), True), Severity.WARNING, Outcome.FAIL, "transformers 4.51.3: wrong logits"),
        (Concern(advisory(routes=("crop",)), False), Severity.NOTE, Outcome.PASS, "on the routes crop only"),
        (Concern(advisory(), True, ("on cuda", "with sdpa")), Severity.NOTE, Outcome.PASS, "on cuda, with sdpa only"),
    ],
)
def test_a_known_fault_is_a_warning_where_it_is_in_use(
    concern: Concern, severity: Severity, outcome: Outcome, said: str
) -> None:
    result = run_check(known_release, advisories=listed(concern))
    (finding,) = result.findings
    assert (finding.severity, result.outcome) == (severity, outcome)
    assert said in finding.observed
    assert finding.known == "one-1, transformers >=4.50,<4.52"


def test_without_transformers_nothing_is_known() -> None:
    assert run_check(known_release, advisories=Advisories("", 20, ())).outcome is Outcome.SKIPPED


# --- what a run makes of it ------------------------------------------------------------------------------------------

SHOWN = advisory(routes=("crop", "cached"), shown_by={"crop-parity": "ValueError", "past-key-length": "lacks 0"})
CHECKS = registry.built_in()


def seen(check: str, severity: Severity, observed: str, route: str = "", **more: Any) -> CheckResult:
    where = Location(passes=() if route else ("p",), route=route)
    finding = Finding(
        title="sick", severity=severity, observed=observed, expected="-", do="-", where=where, check=check, **more
    )
    return CheckResult(check=check, group="cache", outcome=Outcome.FAIL, findings=(finding,), examined=Examined(1, "-"))


def passed(check: str) -> CheckResult:
    return CheckResult(check=check, group="cache", outcome=Outcome.PASS, examined=Examined(1, "-"))


def after(
    *others: CheckResult, declared: frozenset[str] = QUICK, one: Advisory = SHOWN, elsewhere: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Results by check, after recognition; known-release's comes first."""
    concern = Concern(one, bool({*one.routes} & declared), elsewhere)
    known = run_check(known_release, advisories=listed(concern))
    return {one.check: one for one in recognised((known, *others), CHECKS, replace(listed(concern), declared=declared))}


def test_a_cause_that_shows_it_is_named_and_known_release_follows() -> None:
    results = after(seen("past-key-length", Severity.ERROR, "the oldest is token 1; lacks 0"))
    (cause,), (known,) = results["past-key-length"].findings, results["known-release"].findings
    assert cause.known == "one-1, transformers >=4.50,<4.52; reproduced by this run"
    assert (cause.do, cause.follows_from) == ("another release", "")
    assert (known.severity, known.follows_from) == (Severity.ERROR, "past-key-length")
    assert "reproduced by this run (past-key-length: the oldest is token 1; lacks 0)" in known.observed
    assert results["known-release"].outcome is Outcome.FAIL


def test_a_consequence_that_shows_it_leads_to_the_cause() -> None:
    shows = seen("past-key-length", Severity.ERROR, "lacks 0", follows_from="position-ids")
    (known,) = after(shows)["known-release"].findings
    assert known.follows_from == "position-ids"


@pytest.mark.parametrize(
    ("severity", "declared", "expected", "follows_from"),
    [
        (Severity.WARNING, QUICK, Severity.WARNING, "crop-parity"),
        (Severity.ERROR, QUICK | {"crop"}, Severity.ERROR, "crop-parity"),
        (Severity.NOTE, QUICK | {"crop"}, Severity.ERROR, ""),  # a refusal explains nothing: this is the cause
        (Severity.NOTE, QUICK, Severity.WARNING, ""),
    ],
)
def test_a_route_that_shows_it(
    severity: Severity, declared: frozenset[str], expected: Severity, follows_from: str
) -> None:
    results = after(seen("crop-parity", severity, "ValueError: no", "crop"), declared=declared)
    (known,) = results["known-release"].findings
    assert (known.severity, known.follows_from) == (expected, follows_from)


def test_what_came_out_right_is_a_note() -> None:
    results = after(passed("past-key-length"))
    (known,) = results["known-release"].findings
    assert known.severity is Severity.NOTE
    assert known.observed.endswith("not reproduced by this run")
    assert results["known-release"].outcome is Outcome.PASS


@pytest.mark.parametrize(
    "others",
    [
        (),
        (passed("crop-parity"),),
        (CheckResult(check="past-key-length", group="cache", outcome=Outcome.SKIPPED, reason="memory"),),
        (seen("past-key-length", Severity.ERROR, "something else"),),
    ],
)
def test_what_was_not_looked_at_stays_a_warning(others: tuple[CheckResult, ...]) -> None:
    (known,) = after(*others)["known-release"].findings
    assert (known.severity, known.follows_from) == (Severity.WARNING, "")


def test_another_route_or_setting_shows_another_fault() -> None:
    results = after(seen("crop-parity", Severity.ERROR, "ValueError: no", "prompt-lookup"))
    assert results["crop-parity"].findings[0].known == ""
    results = after(seen("past-key-length", Severity.ERROR, "lacks 0"), elsewhere=("with sdpa",))
    assert results["past-key-length"].findings[0].known == ""


def test_two_public_faults_are_two_causes() -> None:
    first, second = (
        advisory(shown_by={"past-key-length": "lacks 0"}),
        advisory(id="two-2", shown_by={"crop-parity": "V"}),
    )
    both = listed(Concern(first, True), Concern(second, True))
    cause = seen("past-key-length", Severity.ERROR, "lacks 0")
    for observed, expected in (("V", ""), ("other", "past-key-length")):
        other = seen("crop-parity", Severity.ERROR, observed, "crop", follows_from="past-key-length")
        assert recognised((cause, other), CHECKS, replace(both, declared=QUICK))[1].findings[0].follows_from == expected


# --- patterns against real findings ----------------------------------------------------------------------------------


def route_case(**changes: Any) -> RouteCase:
    fields: dict[str, Any] = {
        "name": "prompt W-8",
        "compared": LOGITS,
        "window": 64,
        "positions": frozen(np.arange(56, 60)),
        "deviation": frozen(np.array([1.0, 1.0, 1.0, 1.0])),
        "flips": frozen(np.zeros(4, dtype=bool)),
        "floor": 1e-4,
    }
    return RouteCase(**(fields | changes))


def crashed(kind: str, message: str, refused: bool = False) -> RouteCase:
    nothing = {
        "positions": frozen(np.zeros(0, dtype=np.int64)),
        "deviation": frozen(np.zeros(0)),
        "flips": frozen(np.zeros(0, dtype=bool)),
    }
    return route_case(crash=Crash(kind, message, 1, 65, None, refused=refused), **nothing)


CROP = (
    "Cannot `crop` a `DynamicSlidingWindowLayer` after it has seen more tokens than itssliding window (otherwise some "
    "states are lost)"
)
FROM_EDGE = {"positions": frozen(np.arange(64, 68))}
BEYOND = {"positions": frozen(np.arange(73, 77))}
BY_ROUTE = [
    ("hybrid-cache-boundary-37574", "cached", route_case(**FROM_EDGE)),
    (
        "default-cache-without-room-37269",
        "forward-loop",
        crashed("IndexError", "index 5 is out of bounds"),
    ),
    (
        "static-cache-not-hybrid-32932",
        "static-cache",
        crashed("RuntimeError", "The size of tensor a (16) must match the size of tensor b (8) at dimension 3"),
    ),
    ("assisted-no-cache-5.0", "assisted", crashed("ValueError", CROP)),
    ("assisted-crop-46629", "prompt-lookup", crashed("ValueError", CROP)),
    (
        "chunked-prefill-positions-43082",
        "chunked-prefill",
        route_case(name="padded, row 1"),
    ),
    (
        "chunked-prefill-no-cache",
        "chunked-prefill",
        crashed("ValueError", "Cannot use prefill chunking without a cache", refused=True),
    ),
    ("sdpa-drops-softcap-32848", "uncached", route_case()),
    ("sdpa-drops-softcap-32848", "cached", route_case(first_layer=0)),
    ("sdpa-drops-softcap-32848", "cached", route_case(window=None, first_layer=0)),
    ("hybrid-cache-several-tokens", "second-turn", route_case(positions=frozen(np.arange(70, 74)))),
    ("hybrid-cache-several-tokens", "chunked-prefill", route_case(name="prompt W+9, prefill_chunk_size", **BEYOND)),
    ("dynamic-cache-not-hybrid", "own-cache", crashed("RuntimeError", "The size of tensor a (26) must match")),
    ("chunked-prefill-5.1", "chunked-prefill", route_case(name="prompt W-8, prefill_chunk_size")),
    ("assisted-rollback-48280", "assisted", crashed("RuntimeError", "The size of tensor a (64) must match")),
    ("gemma4-no-cache-45242", "uncached", route_case()),
]
PARITY_OF = {route: one.id for one in registry.built_in() for route in one.routes}


def parity_finding(route: str, case: RouteCase) -> Finding:
    one = routes.all_routes()[route]
    run = RouteRun(route, one.title, one.condition, True, (case,))
    (finding,) = judge(PARITY_OF[route], "cache", lambda: parity(run, "-")).findings
    return finding


@pytest.mark.parametrize(("name", "route", "case"), BY_ROUTE, ids=[f"{name}-{route}" for name, route, _ in BY_ROUTE])
def test_the_patterns_fit_what_routes_find(name: str, route: str, case: RouteCase) -> None:
    assert fits(BY_ID[name].advisory, parity_finding(route, case))


def keeping_all(layer: CacheLayer) -> CacheLayer:
    return replace(layer, stored=layer.seen)


def test_the_patterns_fit_what_other_checks_find() -> None:
    """On evidence made by hand; the sentences stand in the checks alone."""
    last = one_pass().forwards[-1]
    kept = with_forward(one_pass(), len(one_pass().forwards) - 1, cache=tuple(map(keeping_all, last.cache)))
    (grown,) = run_check(cache_growth, trace=trace(kept)).findings
    assert fits(BY_ID["gemma4-keeps-every-key"].advisory, grown)
    columns = frozen(np.array([[EMPTY_SLOT, 1, 2, 3, 4, 5, 6, 7]]))
    (lost,) = run_check(past_key_length, trace=trace(with_call(one_pass(), 3, 0, key_positions=columns))).findings
    assert fits(BY_ID["hybrid-cache-boundary-37574"].advisory, lost)
    both_ways = config_facts(causal=False)
    looking_back = run_check(sliding_window, config=config(both_ways), facts=model_facts()).findings
    assert any(fits(BY_ID["embeddinggemma-causal"].advisory, one) for one in looking_back)


def test_the_patterns_tell_neighbours_apart() -> None:
    from_the_edge, below = (parity_finding("cached", route_case(first_layer=0, **more)) for more in (FROM_EDGE, {}))
    assert not fits(BY_ID["sdpa-drops-softcap-32848"].advisory, from_the_edge)
    assert not fits(BY_ID["hybrid-cache-boundary-37574"].advisory, below)
    by_hand = parity_finding("chunked-prefill", route_case(name="prompt W-8, by hand"))
    assert not fits(BY_ID["chunked-prefill-positions-43082"].advisory, by_hand)


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_table_has_every_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advisories"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for name, entry in BY_ID.items():
        (line,) = (line for line in out.splitlines() if line.lstrip("* ").startswith(name + " "))
        assert entry.advisory.symptom in line


def test_the_table_of_one_release(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advisories", "--transformers", "4.51.3", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    ids = {one["id"] for one in document["advisories"]}
    assert "hybrid-cache-boundary-37574" in ids and "assisted-crop-46629" not in ids
    assert cli.main(["advisories", "--transformers", "0.1"]) == 0
    assert capsys.readouterr().out.startswith("0 known faults for transformers 0.1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--transformers", "newest\x1b[31m"], "is no version"),
        (["--format", "xml"], "--format is 'xml'; it takes text or json"),
    ],
)
def test_what_the_command_does_not_take(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advisories", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "\x1b" not in err
    assert said in err


def test_it_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from gemma_doctor import cli; cli.main(['advisories']);"
        "print({'torch', 'transformers'} & {*sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr.strip() == "set()"


def test_static_runs_match_release_and_family(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("gemma_doctor.diagnosis.version_of", lambda package: "4.51.3")
    assert cli.main(["check", "gemma-3-270m", "--static", "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (result,) = (one for one in report["results"] if one["check"] == "known-release")
    severities = {one["known"].split(",")[0]: one["severity"] for one in result["findings"]}
    assert severities["hybrid-cache-boundary-37574"] == "warning"
    assert severities["static-cache-not-hybrid-32932"] == "note"
    assert severities["gemma3-float16-36822"] == "note"


def test_a_check_that_did_not_run_keeps_no_fault_from_being_disproved() -> None:
    """float16 as the subject's own dtype: long-generate looked and passed, and the route's check was not selected."""
    own = advisory(routes=("float16",), shown_by={"long-generate": "NaN", "float16-parity": "NaN"})
    met = replace(listed(Concern(own, True)), declared=QUICK)
    known = run_check(known_release, advisories=met)
    ran = tuple(one for one in CHECKS if one.id != "float16-parity")
    (finding,) = recognised((known, passed("long-generate")), ran, met)[0].findings
    assert (finding.severity, "not reproduced by this run" in finding.observed) == (Severity.NOTE, True)
