"""The same findings in every format, and an exit code that depends on none."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import fake_reports
import hostile_reports
import pytest
from lxml import html
from markdown_it import MarkdownIt

from gemma_doctor import cli
from gemma_doctor.finding import Report
from gemma_doctor.report import formats
from gemma_doctor.report.escape import escape

REPORTS = {**fake_reports.ALL, **hostile_reports.ALL}
SEVERITIES = "error|warning|note"
FAULTY = Path(__file__).parent.parent / "sample_configs" / "faulty" / "sliding-window-halved.yaml"
# A form whose module is not there yet is left out, and only then.
FORMS = [form for form in formats.FORMATS if find_spec(f"gemma_doctor.report.{form}")]
# check, severity, title: of every finding, in some order
Findings = list[tuple[str, str, str]]


def of_text(text: str) -> Findings:
    found: Findings = []
    for line in text.splitlines():
        cause = re.fullmatch(rf"CAUSE  ([\w-]+)   ({SEVERITIES})   (.*)", line)
        follows = re.fullmatch(rf"  ([\w-]+) +({SEVERITIES}) +(.*)", line)
        alone = re.fullmatch(r"(warning|note)  ([\w-]+)   (.*)", line)
        if cause or follows:
            found.append((cause or follows).groups())  # type: ignore[union-attr, arg-type]
        elif alone:
            found.append((alone[2], alone[1], alone[3]))
    return found


def of_json(text: str) -> Findings:
    results = json.loads(text)["results"]
    return [(one["check"], one["severity"], escape(one["title"])) for result in results for one in result["findings"]]


def of_sarif(text: str) -> Findings:
    results = json.loads(text)["runs"][0]["results"]
    found = [one for one in results if "suppressions" not in one]
    return [(one["ruleId"], one["level"], escape(one["properties"]["title"])) for one in found]


def of_junit(text: str) -> Findings:
    found: Findings = []
    for case in ElementTree.fromstring(text).iter("testcase"):
        check = case.get("name", "")
        found += [(check, one.get("type", ""), one.get("message", "")) for one in case.findall("failure")]
        output = case.findtext("system-out") or ""
        below = re.findall(rf"^({SEVERITIES}): (.*)$", output, re.MULTILINE)
        found += [(check, severity, title) for severity, title in below]
    return found


def of_github(text: str) -> Findings:
    found: Findings = []
    for name, title in re.findall(r"^::(\w+) .*?title=(.*?)::", text, re.MULTILINE):
        for code, character in (("%3A", ":"), ("%2C", ","), ("%25", "%")):
            title = title.replace(code, character)
        check, colon, said = title.partition(": ")
        if colon:
            found.append((check, "note" if name == "notice" else name, said))
    return found


def of_markdown(text: str) -> Findings:
    root = html.fromstring(f"<div>{MarkdownIt('commonmark').enable('table').render(text)}</div>")
    table = root.find("table")
    found: Findings = []
    for row in [] if table is None else list(table.iter("tr"))[1:]:
        severity, check, title = (cell.text_content().replace("\u200b", "") for cell in row[:3])
        found.append((check, severity.split()[0], re.sub(r" \(follows from [\w-]+\)$", "", title)))
    return found


READERS: dict[str, Callable[[str], Findings]] = {
    "text": of_text,
    "json": of_json,
    "sarif": of_sarif,
    "junit": of_junit,
    "github": of_github,
    "markdown": of_markdown,
}


def due(report: Report) -> Findings:
    return [(one.check, one.severity.word, escape(one.title)) for one in report.findings]


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("form", READERS)
def test_the_same_findings_can_be_read_out_of_every_format(form: str, name: str) -> None:
    report = REPORTS[name]
    found = READERS[form](formats.render(report, form))
    if form == "text":  # a note has its observation behind its title on the same line
        found = [(check, severity, title.split(": right")[0]) for check, severity, title in found]
    assert sorted(found) == sorted(due(report))


@pytest.mark.parametrize("name", REPORTS)
def test_a_page_holds_every_finding(name: str) -> None:
    page = html.fromstring(formats.render(REPORTS[name], "html"))
    said = " ".join(page.text_content().split())
    for check, severity, title in due(REPORTS[name]):
        assert check in said
        assert severity in said.lower()
        assert " ".join(title.split()) in said


@pytest.mark.parametrize("form", FORMS)
def test_no_format_has_terminal_escapes_in_a_file(form: str) -> None:
    assert not {"\x1b", "\u202e", "\x00"} & set(formats.render(hostile_reports.HOSTILE, form))


@pytest.mark.parametrize("form", FORMS)
def test_a_report_renders_the_same_twice(form: str) -> None:
    assert formats.render(fake_reports.SICK, form) == formats.render(fake_reports.SICK, form)


@pytest.mark.parametrize(
    ("subject", "fail_on", "exit_code"),
    [
        ("gemma-3-270m", "error", 0),
        (str(FAULTY), "error", 1),
        (str(FAULTY), "never", 0),
        ("no-such-preset", "error", 2),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_the_exit_code_depends_on_no_format(
    form: str, subject: str, fail_on: str, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", subject, "--static", "--fail-on", fail_on, "--format", form]) == exit_code
    assert bool(capsys.readouterr().out) == (exit_code != 2)


def test_one_run_writes_them_all_with_one_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = [flag for form in FORMS for flag in ("--report", f"{form}={tmp_path / form}")]
    assert cli.main(["check", str(FAULTY), "--static", "-q", *wanted]) == 1
    assert capsys.readouterr().out.startswith("SICK")
    assert {path.name for path in tmp_path.iterdir()} == {*FORMS}
    read = {form: sorted(reader((tmp_path / form).read_text(encoding="utf-8"))) for form, reader in READERS.items()}
    assert len(read["json"]) >= 1
    assert all(found == read["json"] for form, found in read.items() if form != "text")
    # text puts the observation of a note on its line
    assert [one for one in read["text"] if one[1] != "note"] == [one for one in read["json"] if one[1] != "note"]
