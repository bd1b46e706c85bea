"""The JUnit report: valid by its schema, and in agreement with the exit code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fake_reports
import hostile_reports
import pytest
from fake_reports import HEALTHY, LATE, SICK
from hostile_reports import HOSTILE, SUPPRESSED, WARNED
from lxml import etree

from gemma_doctor.finding import Report
from gemma_doctor.report import junit

SCHEMA = etree.XMLSchema(etree.parse(Path(__file__).parent / "schemas" / "junit-10.xsd"))
REPORTS = {**fake_reports.ALL, **hostile_reports.ALL}


def tree(report: Report) -> etree._Element:
    return etree.fromstring(junit.render(report).encode("ascii"))


def case(report: Report, check: str) -> etree._Element:
    (found,) = tree(report).xpath("//testcase[@name=$check]", check=check)
    return found


@pytest.mark.parametrize("name", REPORTS)
def test_every_report_fits_the_schema(name: str) -> None:
    SCHEMA.assertValid(tree(REPORTS[name]))


def test_the_schema_would_refuse_a_suite_without_counts() -> None:
    root = tree(SICK)
    del root[0].attrib["failures"]
    assert not SCHEMA.validate(root)


@pytest.mark.parametrize("name", REPORTS)
def test_it_agrees_with_the_exit_code(name: str) -> None:
    root = tree(REPORTS[name])
    failed = int(root.get("failures")), int(root.get("errors"))
    assert (failed == (0, 0)) == (REPORTS[name].exit_code == 0)
    if REPORTS[name].exit_code == 2:
        assert failed[1] > 0


@pytest.mark.parametrize("name", REPORTS)
def test_counts_are_those_of_the_cases(name: str) -> None:
    for suite in tree(REPORTS[name]).iter("testsuite"):
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(suite.get(attribute)) == len(suite.xpath(f"testcase[{tag}]"))
        assert int(suite.get("tests")) == len(suite.findall("testcase"))


def test_a_case_for_every_check_in_the_suite_of_its_group() -> None:
    found = [(one.getparent().get("name"), one.get("name")) for one in tree(SICK).iter("testcase")]
    assert found == [(f"gemma-doctor.{one.group}", one.check) for one in SICK.results]


def test_a_finding_that_counts_is_a_failure_with_its_evidence() -> None:
    (failure,) = case(SICK, "past-key-length").findall("failure")
    assert failure.get("message") == "sliding cache drops a key one step early"
    assert failure.get("type") == "error"
    assert "observed: 511 keys, the oldest is token 1\n" in failure.text


def test_a_finding_below_fail_on_is_output() -> None:
    one = case(SICK, "padding-side")
    assert one.find("failure") is None
    assert "warning: tokenizer pads right" in one.findtext("system-out")


def test_fail_on_decides() -> None:
    assert len(case(WARNED, "padding-side").findall("failure")) == 2
    assert int(tree(replace(WARNED, fail_on=None, exit_code=0)).get("failures")) == 0


@pytest.mark.parametrize("check", ["mask-dtype", "rms-norm-eps"])
def test_what_was_not_looked_at_is_skipped_with_its_reason(check: str) -> None:
    reason = next(one.reason for one in SICK.results if one.check == check)
    assert case(SICK, check).find("skipped").get("message") == reason


def test_a_run_that_could_not_examine_says_so_in_a_case_of_its_own() -> None:
    assert case(LATE, "examination").find("error").get("message") == "timed out after 10 s"


def test_a_suppressed_finding_is_no_failure_and_no_secret() -> None:
    one = case(SUPPRESSED, "padding-side")
    assert one.find("failure") is None
    assert "suppressed (run file): tokenizer pads right" in one.findtext("system-out")


def test_characters_that_xml_cannot_hold_are_written_out() -> None:
    message = case(HOSTILE, "past-key-length").find("failure").get("message")
    assert "\\x1b[31mred" in message
    assert "\\x00 \\ufffe ]]>" in message
    assert junit.render(HOSTILE).isascii()


def test_only_the_time_differs_between_two_runs() -> None:
    first, second = junit.render(HEALTHY), junit.render(replace(HEALTHY, timing={"total": 1.0, "phases": {}}))
    assert first != second
    assert first.replace('time="41.200"', "") == second.replace('time="1.000"', "")
