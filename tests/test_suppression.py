"""Suppressions of a run file: which findings they take out, what goes with them, and what the headline says of it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace

import pytest
from fake_reports import EARLY_DROP, HEALTHY, LOOP, RIGHT_PADDING, SHIFT, SICK, result, with_results

from gemma_doctor.finding import CheckResult, Finding, Location, Outcome, Report, Severity, Suppressed
from gemma_doctor.known import set_aside
from gemma_doctor.report import verdict
from gemma_doctor.report.reading_path import group_mark, mark
from gemma_doctor.report.text import render
from gemma_doctor.suppression import Suppression, parse

TODAY = datetime.date(2026, 12, 1)
BY_HAND = Suppression("padding-side", "we pad by hand")


def aside(results: Sequence[CheckResult], *entries: Suppression) -> tuple[list[Finding], list[Suppressed], list[str]]:
    """What is left, what is suppressed, what is said."""
    kept, known, remarks = set_aside(results, entries, None, TODAY)
    assert [(one.check, one.outcome) for one in kept] == [(one.check, one.outcome) for one in results]
    return [finding for one in kept for finding in one.findings], list(known), list(remarks)


def failed(check: str, *findings: Finding) -> CheckResult:
    return result(check, "cache", Outcome.FAIL, *(replace(one, check=check) for one in findings))


def suppressed(report: Report, *entries: Suppression) -> Report:
    results, known, remarks = set_aside(report.results, entries, None, TODAY)
    return replace(report, results=results, suppressed=known, remarks=(*report.remarks, *remarks))


# --- which findings --------------------------------------------------------------------------------------------------


def test_the_findings_of_the_named_check_are_taken_out_and_no_others() -> None:
    left, known, said = aside(SICK.results, BY_HAND)
    assert known == [Suppressed(RIGHT_PADDING, "we pad by hand", "run file")]
    assert RIGHT_PADDING not in left
    assert EARLY_DROP in left
    assert said == []


@pytest.mark.parametrize(("title", "meant"), [("tokenizer pads right", True), ("pads right", False), ("", True)])
def test_a_title_means_findings_that_begin_so(title: str, meant: bool) -> None:
    _, known, _ = aside(SICK.results, replace(BY_HAND, title=title))
    assert bool(known) == meant


def test_the_first_entry_that_means_a_finding_gives_the_reason() -> None:
    _, known, said = aside(SICK.results, BY_HAND, replace(BY_HAND, reason="another"))
    assert [one.reason for one in known] == ["we pad by hand"]
    assert said == []


@pytest.mark.parametrize(("until", "counts"), [(None, False), ("2026-12-02", False), ("2026-12-01", True)])
def test_an_entry_counts_until_its_day(until: str | None, counts: bool) -> None:
    left, _, said = aside(SICK.results, parse({"check": "padding-side", "reason": "soon", "until": until}))
    assert (RIGHT_PADDING in left) == counts
    assert said == (["the suppression of padding-side expired on 2026-12-01: its findings count again"] * counts)


# --- what follows ----------------------------------------------------------------------------------------------------


def test_what_follows_from_a_suppressed_finding_is_suppressed_for_its_reason() -> None:
    left, known, _ = aside(SICK.results, Suppression("past-key-length", "pinned release"))
    assert [(one.finding, one.reason) for one in known] == [(EARLY_DROP, "pinned release"), (LOOP, "pinned release")]
    assert left == [RIGHT_PADDING, SHIFT]


def test_what_follows_from_what_follows_is_suppressed_as_well() -> None:
    results = (
        failed("c", replace(LOOP, follows_from="b")),
        failed("b", replace(LOOP, follows_from="a")),
        failed("a", EARLY_DROP),
    )
    assert aside(results, Suppression("a", "known"))[0] == []


def test_another_finding_of_the_same_check_still_explains_it() -> None:
    two = failed("past-key-length", EARLY_DROP, replace(EARLY_DROP, title="another"))
    left, known, _ = aside((two, failed("x", LOOP)), Suppression("past-key-length", "known", "sliding cache"))
    assert [one.title for one in left] == ["another", LOOP.title]
    assert len(known) == 1


def test_a_warning_that_is_left_explains_no_error() -> None:
    warned = replace(EARLY_DROP, title="another", severity=Severity.WARNING)
    two = failed("past-key-length", EARLY_DROP, warned)
    left, _, _ = aside((two, failed("x", LOOP)), Suppression("past-key-length", "known", "sliding cache"))
    assert [one.title for one in left] == ["another"]


def test_a_consequence_alone_can_be_suppressed() -> None:
    left, known, _ = aside(SICK.results, Suppression("long-generate", "seen"))
    assert [one.finding for one in known] == [LOOP]
    assert EARLY_DROP in left


# --- entries that are of no use --------------------------------------------------------------------------------------


def test_an_entry_that_met_nothing_is_told() -> None:
    assert aside(HEALTHY.results, BY_HAND)[2] == ["the suppression of padding-side met nothing: remove it"]
    said = aside(SICK.results, replace(BY_HAND, title="pads"))[2]
    assert said == ["the suppression of padding-side (pads ...) met nothing: remove it"]


@pytest.mark.parametrize("outcome", [Outcome.SKIPPED, Outcome.NOT_APPLICABLE, Outcome.ERROR])
def test_of_a_check_that_did_not_look_nothing_is_told(outcome: Outcome) -> None:
    report = with_results(HEALTHY, result("padding-side", "tokens", outcome, said="no tokenizer"))
    assert aside(report.results, BY_HAND)[2] == []


def test_of_a_check_that_was_left_out_nothing_is_told() -> None:
    assert aside(HEALTHY.results[:1], BY_HAND)[2] == []


# --- what a person sees ----------------------------------------------------------------------------------------------

PADDED = with_results(HEALTHY, result("padding-side", "tokens", Outcome.FAIL, RIGHT_PADDING, said="3 rows, 2 padded"))


def test_a_known_fault_is_no_health() -> None:
    headline = verdict.headline(suppressed(PADDED, BY_HAND))
    assert headline == "NO NEW FAULT in all that was looked at: 1 suppressed; 8 passed, 0 not evaluated"


def test_what_was_skipped_is_not_said_to_be_looked_at() -> None:
    skipped = with_results(PADDED, result("long-generate", "generation", Outcome.SKIPPED, said="no time"))
    assert verdict.headline(suppressed(skipped, BY_HAND)).startswith("NO NEW FAULT in what was looked at: ")


def test_a_note_that_is_known_changes_no_verdict() -> None:
    noted = with_results(HEALTHY, result("position-ids", "positions", Outcome.PASS, SHIFT, said="97 steps"))
    assert verdict.verdict(suppressed(noted, Suppression("position-ids", "meant"))) == "HEALTHY"


def test_what_counts_decides_beside_what_is_known() -> None:
    assert verdict.verdict(suppressed(SICK, BY_HAND)) == "SICK"
    assert verdict.verdict(suppressed(SICK, Suppression("past-key-length", "known"))) == "WARNING"


def test_the_report_has_a_line_for_each_with_its_reason() -> None:
    lines = render(suppressed(PADDED, BY_HAND)).splitlines()
    assert f"known  padding-side   {RIGHT_PADDING.title}: we pad by hand (run file)" in lines
    assert any(line.startswith("  tokens      known  padding-side") for line in lines)


def test_whoever_asks_sees_what_was_measured() -> None:
    text = render(suppressed(SICK, Suppression("past-key-length", "known")), verbosity=1)
    assert f"known  past-key-length   error, {EARLY_DROP.title}: known (run file)\n  where " in text


@pytest.mark.parametrize(
    ("findings", "word"), [((), "known"), ((SHIFT,), "known"), ((RIGHT_PADDING,), "warn"), ((EARLY_DROP,), "FAIL")]
)
def test_the_mark_of_a_check_that_failed_is_of_what_is_left(findings: tuple[Finding, ...], word: str) -> None:
    one = result("padding-side", "tokens", Outcome.FAIL, *findings)
    assert mark(one) == word
    assert group_mark([one, result("truncation", "tokens", Outcome.PASS)]) == word


def test_a_hostile_reason_is_shown_as_text() -> None:
    text = render(suppressed(PADDED, replace(BY_HAND, reason="\x1b[2J\nexit 0")))
    assert "\x1b" not in text
    assert "\nexit 0\n" not in text


def test_a_place_is_no_part_of_what_an_entry_means() -> None:
    elsewhere = replace(RIGHT_PADDING, where=Location((3,), ("padded batch",)))
    assert aside([failed("padding-side", elsewhere)], BY_HAND)[0] == []
