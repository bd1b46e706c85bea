"""The report as Markdown (CommonMark with GitHub's tables), for comments on issues and pull requests.

Texts from the subject stand as texts: nothing in them becomes markup, a link, a mention of somebody, or a reference to
an issue.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from gemma_doctor.finding import Finding, Report, Severity
from gemma_doctor.report import verdict
from gemma_doctor.report.account import account, in_order
from gemma_doctor.report.escape import escape
from gemma_doctor.report.heading import heading
from gemma_doctor.report.reading_path import mark, sentence

HEAD = ("", "check", "finding", "observed", "expected")
# Everything that can begin markup within a line, and what GitHub makes links of in plain text.
MARKUP = re.compile(r"[\\`*_{}\[\]<>&~|$]|:(?=//)|(?<=www)\.")
CALLED = re.compile(r"@|#(?=\d)|(?<=GH)-(?=\d)", re.IGNORECASE)
LINKED = re.compile(r":(?=//)|www(?=\.)", re.IGNORECASE)  # where no backslash can stand
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
APART = "&#8203;"  # a space of no width: what stands behind it is no name and no number to GitHub


def render(report: Report) -> str:
    """Headline and table to be seen at once, everything else folded."""
    parts = [*_top(report), *_table([_row(finding, report) for finding in in_order(report)])]
    for finding in (*report.causes, *report.warnings):
        parts += _folded(f"{finding.check}: {finding.title}", _details(finding, report))
    if report.suppressed:
        rows = [(one.finding.check, one.finding.title, f"{one.reason} ({one.source})") for one in report.suppressed]
        parts += _folded(f"{len(rows)} suppressed", _table(rows, ("check", "finding", "why it does not count")))
    path = [(one.group, mark(one), one.check, sentence(one)) for one in report.results]
    parts += _folded("reading path", _table(path, ("layer", "", "check", "looked at, or why not")))
    facts = [(key, str(value)) for key, value in report.environment.items() if value is not None]
    parts += _folded("environment", _table(facts, ("", "used")))
    return "\n".join([*parts, _bottom(report), ""])


def summary(report: Report, room: int) -> str:
    """Headline and table alone, in at most `room` bytes of UTF-8: the last rows are left out where it is too little."""
    rows = [_row(finding, report) for finding in in_order(report)]
    for kept in range(len(rows), -1, -1):
        left_out = [f"{len(rows) - kept} more left out for want of room.", ""] if kept < len(rows) else []
        text = "\n".join([*_top(report), *_table(rows[:kept]), *left_out, _bottom(report), ""])
        if len(text.encode(errors="backslashreplace")) <= room:
            return text
    return ""


def inline(text: str) -> str:
    """Untrusted text within a line or a cell, as text."""
    safe = MARKUP.sub(lambda found: ENTITIES.get(found[0], f"\\{found[0]}"), escape(text))
    return CALLED.sub(lambda found: f"{found[0]}{APART}", safe)


def _top(report: Report) -> list[str]:
    """Whatever the lines hold, none begins a block: they are one line of one paragraph."""
    lines = [inline(line.label + line.body) for line in heading(report, verbosity=0)]
    return [f"### gemma-doctor: {inline(verdict.headline(report))}", "", "<br>".join(filter(None, lines)), ""]


def _bottom(report: Report) -> str:
    return f"**exit {report.exit_code}** ({inline(verdict.exit_reason(report))})"


def _row(finding: Finding, report: Report) -> tuple[str, ...]:
    is_cause = finding.severity is Severity.ERROR and not finding.follows_from
    word = f"{finding.severity.word} (cause)" if is_cause else finding.severity.word
    follows = f" (follows from {finding.follows_from})" if finding.follows_from else ""
    return word, finding.check, f"{finding.title}{follows}", finding.observed, finding.expected


def _table(rows: Sequence[Sequence[str]], head: Sequence[str] = HEAD) -> list[str]:
    """None without rows. A blank line stands behind it: whatever follows is no row of it."""
    if not rows:
        return []
    lines = [head, ("---",) * len(head), *(tuple(map(inline, row)) for row in rows)]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


def _folded(title: str, body: Iterable[str]) -> list[str]:
    """A part that opens on a click."""
    return ["<details>", f"<summary>{_raw(title)}</summary>", "", *body, "</details>", ""]


def _details(finding: Finding, report: Report) -> Iterator[str]:
    yield from _table(list(account(finding, report.subject)), ("", finding.severity.word))
    if finding.strip:
        strip = finding.strip
        yield f"<pre>{_raw(strip.caption)}"
        yield f"expected  {_raw(strip.expected)}"
        yield f"observed  {_raw(strip.observed)}</pre>"
        yield ""


def _raw(text: str) -> str:
    """Untrusted text within HTML."""
    safe = html.escape(escape(text), quote=False)
    for pattern in (CALLED, LINKED):
        safe = pattern.sub(lambda found: f"{found[0]}{APART}", safe)
    return safe
