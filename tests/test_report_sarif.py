"""The SARIF report: valid by its schema, findings where they stand, nothing untrusted that is more than text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_reports
import hostile_reports
import jsonschema
import pytest
from hostile_reports import EVIL, IN_A_FILE, SUPPRESSED

from gemma_doctor import documentation, registry
from gemma_doctor.documentation import HEADINGS
from gemma_doctor.finding import Report
from gemma_doctor.fingerprint import fingerprints
from gemma_doctor.report import sarif

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft4Validator(SCHEMA)
REPORTS = {**fake_reports.ALL, **hostile_reports.ALL}


def run_of(report: Report) -> dict[str, Any]:
    (run,) = json.loads(sarif.render(report))["runs"]
    assert isinstance(run, dict)
    return run


@pytest.mark.parametrize("name", REPORTS)
def test_every_report_fits_the_schema(name: str) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(json.loads(sarif.render(REPORTS[name])))] == []


def test_the_schema_would_refuse_a_wrong_level() -> None:
    log = json.loads(sarif.render(IN_A_FILE))
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert not VALIDATOR.is_valid(log)


def test_a_rule_for_every_check_in_the_order_of_the_results_that_name_it() -> None:
    run = run_of(fake_reports.SICK)
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == [result.check for result in fake_reports.SICK.results]
    assert all(rules[one["ruleIndex"]] == one["ruleId"] for one in run["results"])


def test_a_rule_says_what_explain_says() -> None:
    rule = run_of(IN_A_FILE)["tool"]["driver"]["rules"][0]
    assert rule["shortDescription"]["text"] == "The window is the published one."
    assert rule["fullDescription"]["text"] == "That {{W}} is W. And more."
    assert rule["help"]["markdown"].startswith("## What it proves\n\nThat {{W}} is W.\n\nAnd more.\n\n## References")
    assert rule["helpUri"] == "https://arxiv.org/abs/2408.00118"


def test_without_references_a_rule_has_no_link() -> None:
    assert "helpUri" not in run_of(fake_reports.SICK)["tool"]["driver"]["rules"][0]


@pytest.mark.parametrize("check", registry.built_in(), ids=lambda check: check.id)
def test_code_scanning_has_room_for_what_a_check_says(check: Any) -> None:
    about = documentation.read(check.documentation)
    assert tuple(about.sections) == HEADINGS
    assert len(about.proves) <= 1024


def test_a_result_points_into_the_file_with_its_line() -> None:
    first = run_of(IN_A_FILE)["results"][0]
    assert first["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "my%20model/config.json", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 48},
    }


@pytest.mark.parametrize(
    ("path", "uri"),
    [("/a b/config.json", "file:///a%20b/config.json"), ("C:/a/config.json", "file:///C:/a/config.json")],
)
def test_an_absolute_path_has_no_base(path: str, uri: str) -> None:
    report = replace(IN_A_FILE, subject={**IN_A_FILE.subject, "config_file": path})
    artifact = run_of(report)["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": uri}


@pytest.mark.parametrize(("path", "uri"), [("h::x/é%.json", "h%3A%3Ax/%C3%A9%25.json"), ("a/b", "a/b")])
def test_a_relative_path_is_encoded(path: str, uri: str) -> None:
    report = replace(IN_A_FILE, subject={**IN_A_FILE.subject, "config_file": path})
    artifact = run_of(report)["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": uri, "uriBaseId": "%SRCROOT%"}


def test_layers_and_passes_are_logical_locations() -> None:
    result = next(one for one in run_of(fake_reports.SICK)["results"] if one["ruleId"] == "past-key-length")
    named = [one["fullyQualifiedName"] for one in result["locations"][0]["logicalLocations"]]
    assert named == ["layers 0-4", "layers 6-10", "layers 12-16", "pass crossing"]


def test_fingerprints_are_those_of_every_other_form() -> None:
    marks = [one["partialFingerprints"]["gemmaDoctor/v1"] for one in run_of(fake_reports.SICK)["results"]]
    assert marks == list(fingerprints(fake_reports.SICK.findings))


def test_a_suppressed_finding_says_why() -> None:
    (result,) = run_of(SUPPRESSED)["results"]
    assert result["suppressions"] == [
        {"kind": "external", "status": "accepted", "justification": "run file: we pad by hand"}
    ]


def test_what_could_not_be_looked_at_is_a_notification() -> None:
    (invocation,) = run_of(fake_reports.SICK)["invocations"]
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["level"] == "warning"
    assert notification["associatedRule"]["id"] == "rms-norm-eps"
    assert "no norm was found" in notification["message"]["text"]


@pytest.mark.parametrize(("name", "successful"), [("healthy", True), ("sick", True), ("crashed", False)])
def test_the_invocation_has_the_exit_code(name: str, successful: bool) -> None:
    (invocation,) = run_of(REPORTS[name])["invocations"]
    assert invocation["exitCode"] == REPORTS[name].exit_code
    assert invocation["executionSuccessful"] is successful


def test_hostile_text_makes_no_placeholder_no_link_and_no_escape() -> None:
    result = next(one for one in run_of(hostile_reports.HOSTILE)["results"] if one["ruleId"] == "past-key-length")
    text = result["message"]["text"]
    assert "{{0}} {{{{1}}}}" in text
    assert "[click] (https" in text
    assert "\\x1b[31mred" in text
    assert not {"\x1b", "\u202e", "\x00"} & set(text)


def test_nothing_but_ascii() -> None:
    text = sarif.render(hostile_reports.HOSTILE)
    assert text.isascii()
    assert EVIL not in text


def test_two_runs_are_the_same_bytes() -> None:
    assert sarif.render(fake_reports.SICK) == sarif.render(replace(fake_reports.SICK, timing={"total": 1.0}))
