"""The reading path: what was looked at, layer by layer of the path, and what was not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gemma_doctor.finding import CheckResult, Outcome, Report, Severity, counted
from gemma_doctor.report.lines import Line, is_cut

MARK_STYLES = {
    "FAIL": "bold red",
    "CRASH": "bold magenta",
    "warn": "yellow",
    "skip": "magenta",
    "part": "magenta",
    "known": "cyan",
    "ok": "green",
    "n/a": "dim",
}
MOST_IN_FULL = 2  # checks on one line
_BY_OUTCOME = {
    Outcome.PASS: "ok",
    Outcome.SKIPPED: "skip",
    Outcome.NOT_APPLICABLE: "n/a",
    Outcome.ERROR: "CRASH",
}


def by_group(report: Report) -> dict[str, list[CheckResult]]:
    """The results, by layer of the path."""
    groups: dict[str, list[CheckResult]] = {}
    for result in report.results:
        groups.setdefault(result.group, []).append(result)
    return groups


def skipped_by_reason(report: Report) -> dict[str, list[str]]:
    """The checks that could not look, by reason."""
    skipped: dict[str, list[str]] = {}
    for result in report.results:
        if result.outcome is Outcome.SKIPPED:
            skipped.setdefault(result.reason, []).append(result.check)
    return skipped


def mark(result: CheckResult) -> str:
    """One word for what became of a check; "known" when nothing that it found counts any more."""
    if result.outcome is Outcome.FAIL and result.worst in (None, Severity.NOTE):
        return "known"
    if result.outcome is Outcome.FAIL:
        return "FAIL" if result.worst is Severity.ERROR else "warn"
    return _BY_OUTCOME[result.outcome]


def group_mark(results: Sequence[CheckResult]) -> str:
    """One word for a layer of the path; "part" when some of its checks could not look."""
    marks = {mark(result) for result in results} - {"n/a"}
    for loud in ("FAIL", "CRASH", "warn", "known"):
        if loud in marks:
            return loud
    if marks == {"ok", "skip"}:
        return "part"
    return marks.pop() if marks else "n/a"


def sentence(result: CheckResult) -> str:
    """What a check looked at, or why it did not."""
    return result.reason or (result.examined.sentence if result.examined else "")


def _beginning(result: CheckResult) -> str:
    """The first thing that a sentence says; what is loud says all of it."""
    said = sentence(result)
    return said if mark(result) != "ok" else re.split(r"[:;,] ", said)[0]


def _route(result: CheckResult) -> str:
    """The route that was held against the reference, "" for any other check."""
    return result.examined.route if result.examined else ""


def _in_short(results: Sequence[CheckResult]) -> str:
    """The checks that say something, the loud ones first; what was skipped or is n/a is said elsewhere."""
    order = list(MARK_STYLES)
    shown = [r for r in results if mark(r) not in ("skip", "n/a")] or [r for r in results if mark(r) == "n/a"]
    shown.sort(key=lambda result: order.index(mark(result)))
    words = sentence if len(shown) <= MOST_IN_FULL else _beginning
    agree = [_route(r) for r in shown if _route(r) and mark(r) == "ok"]
    shown = [r for r in shown if _route(r) not in agree]
    # of routes that differ the findings above say all
    parts = [f"{r.check}: {said}" if not _route(r) and (said := words(r)) else r.check for r in shown]
    if agree:
        parts.append(f"the logits of the reference on {counted(len(agree), 'route')}: {', '.join(agree)}")
    return "; ".join(parts) or ", ".join(r.check for r in results)


def reading_path(report: Report, width: int | None, verbosity: int) -> Iterator[Line]:
    """One line per layer of the path; one per check when asked to be verbose."""
    groups = by_group(report)
    wide = max((len(group) for group in groups), default=0)
    if verbosity:
        yield Line("reading path")
        yield from _every_check(groups, wide)
        return
    lines = []
    for group, results in groups.items():
        word = group_mark(results)
        lines.append(Line(f"  {group:<{wide}}  {word:<5}  ", _in_short(results), MARK_STYLES[word], one_line=True))
    if not report.only_notes:
        yield Line(f"reading path{'   (in full: -v)' if any(is_cut(line, width) for line in lines) else ''}")
    yield from lines


def _every_check(groups: dict[str, list[CheckResult]], wide: int) -> Iterator[Line]:
    longest = max((len(result.check) for results in groups.values() for result in results), default=0)
    for group, results in groups.items():
        for index, result in enumerate(results):
            shown = "" if index else group
            label = f"  {shown:<{wide}}  {mark(result):<5}  {result.check:<{longest}}  "
            yield Line(label, sentence(result), MARK_STYLES[mark(result)])


def not_evaluated(report: Report) -> Iterator[Line]:
    """What could not be looked at, by reason; what crashed."""
    skipped = skipped_by_reason(report)
    if skipped:
        said = "; ".join(f"{', '.join(checks)} ({reason})" for reason, checks in skipped.items())
        yield Line("not evaluated: ", said, style="magenta")
    for result in report.results:
        if result.outcome is Outcome.ERROR:
            said = f"{result.check} ({result.reason}): a fault of the check, not of the subject"
            yield Line("crashed: ", said, style="bold magenta")
