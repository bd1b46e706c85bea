"""The report as workflow commands of GitHub Actions: an annotation for each finding, causes first.

GitHub shows ten errors, ten warnings and ten notices of a step, and drops the rest; all of them stand in the log. The
table for the job's summary is `markdown.summary`.
"""

from __future__ import annotations

from gemma_doctor.finding import Finding, Outcome, Report, Severity
from gemma_doctor.report import verdict
from gemma_doctor.report.account import account, in_order
from gemma_doctor.report.escape import escape
from gemma_doctor.report.heading import heading

COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
# A runner takes these for the end of a message, or of a property's value. The percent sign comes first.
IN_DATA = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
IN_PROPERTIES = (*IN_DATA, (":", "%3A"), (",", "%2C"))


def render(report: Report) -> str:
    """Lines for the log, headline first; then one for each finding, and for each check that crashed."""
    lines = [f"gemma-doctor: {verdict.headline(report)}; exit {report.exit_code} ({verdict.exit_reason(report)})"]
    lines += [f"- {line.label}{line.body}" for line in heading(report, verbosity=0)]
    # a command is a line that begins with it, or holds its old spelling anywhere
    lines = [escape(line).replace("##[", "## [") for line in lines]
    lines += [_annotation(finding, report) for finding in in_order(report)]
    for result in report.results:
        if result.outcome is Outcome.ERROR:
            lines.append(_command("error", f"{result.check} crashed", result.reason, {}))
    if report.exit_code not in (0, 1) and not report.count(Outcome.ERROR):
        lines.append(_command("error", "gemma-doctor could not examine", verdict.exit_reason(report), {}))
    return "\n".join(lines) + "\n"


def _annotation(finding: Finding, report: Report) -> str:
    """At the line of the configuration file that it is about, where there is one."""
    place: dict[str, str] = {}
    path = report.subject.get("config_file")
    if path:
        place["file"] = str(path)
        if finding.line is not None:
            place["line"] = str(finding.line)
    told = [f"{label}: {escape(text)}" for label, text in account(finding, report.subject)]
    told += [f"follows from: {finding.follows_from}"] if finding.follows_from else []
    title = f"{finding.check}: {finding.title}"
    return _command(COMMANDS[finding.severity], title, "\n".join(told), place)


def _command(name: str, title: str, message: str, place: dict[str, str]) -> str:
    """One line, whatever the texts hold; `message` may have several."""
    properties = ",".join(f"{key}={_value(text)}" for key, text in {**place, "title": title}.items())
    return f"::{name} {properties}::{_encoded(_lines(message), IN_DATA)}"


def _value(text: str) -> str:
    return _encoded(escape(text), IN_PROPERTIES)


def _lines(text: str) -> str:
    return "\n".join(map(escape, text.split("\n")))


def _encoded(text: str, pairs: tuple[tuple[str, str], ...]) -> str:
    for character, code in pairs:
        text = text.replace(character, code)
    return text
