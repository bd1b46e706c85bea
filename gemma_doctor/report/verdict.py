"""The report in one line: what the headline says, and why the exit code is what it is."""

from __future__ import annotations

from gemma_doctor.finding import Outcome, Report, Severity, counted


def is_static(report: Report) -> bool:
    """Only the published file was looked at."""
    return report.subject["weights"] == "none"


def verdict(report: Report) -> str:
    """A word or a few: SICK, WARNING, INTERRUPTED, INCOMPLETE, NOT EXAMINED, NO NEW FAULT, NO FAULT FOUND or HEALTHY.

    HEALTHY is said only when every check that the subject has something for has looked, and nothing above a note was
    suppressed: a fault that is known is no health.
    """
    worst = max((f.severity for f in report.findings), default=None)
    if worst is Severity.ERROR:
        return "SICK"
    if report.interrupted:
        return "INTERRUPTED"
    if not report.looked:
        return "NOT EXAMINED"
    if report.count(Outcome.ERROR):
        return "INCOMPLETE"
    if worst is Severity.WARNING:
        return "WARNING"
    if any(one.finding.severity > Severity.NOTE for one in report.suppressed):
        return "NO NEW FAULT"
    return "NO FAULT FOUND" if report.count(Outcome.SKIPPED) else "HEALTHY"


def counts(report: Report) -> str:
    """ "1 cause, 2 consequences, 1 warning, 1 suppressed; 7 passed, 1 not evaluated"."""
    found = [
        counted(number, word)
        for number, word in (
            (len(report.causes), "cause"),
            (len(report.consequences), "consequence"),
            (len(report.warnings), "warning"),
            (len(report.notes), "note"),
        )
        if number
    ]
    found += [f"{len(report.suppressed)} suppressed"] if report.suppressed else []
    looked = [f"{report.count(Outcome.PASS)} passed", f"{report.count(Outcome.SKIPPED)} not evaluated"]
    if report.count(Outcome.NOT_APPLICABLE):
        looked.append(f"{report.count(Outcome.NOT_APPLICABLE)} n/a")
    if report.count(Outcome.ERROR):
        looked.append(f"{report.count(Outcome.ERROR)} crashed")
    return "; ".join(part for part in (", ".join(found), ", ".join(looked)) if part)


def headline(report: Report) -> str:
    """The verdict with its range and its figures."""
    word = verdict(report)
    some = " in what was looked at"
    every = some if report.count(Outcome.SKIPPED) else " in all that was looked at"
    ranges = {"HEALTHY": every, "NO FAULT FOUND": some, "NO NEW FAULT": every}
    on = ", on a SKELETON" if report.subject["weights"] == "skeleton" else ""
    also = " (INTERRUPTED)" if report.interrupted and word != "INTERRUPTED" else ""
    on = ", in the published file alone" if is_static(report) else on
    return f"{word}{also}{ranges.get(word, '')}{on}: {counts(report)}"


def exit_reason(report: Report) -> str:
    """Why the exit code is what it is."""
    if report.interrupted and report.exit_code == 130:
        return "interrupted"
    if report.exit_code == 2:
        return _why_not_examined(report)
    limit = report.fail_on.word if report.fail_on else "never"
    if report.fail_on is None:
        return "--fail-on never"
    reached = sum(f.severity >= report.fail_on for f in report.findings)
    least = "" if report.fail_on is Severity.ERROR else " or worse"
    return f"{counted(reached, limit)}{least}, --fail-on {limit}" if reached else f"no {limit}{least}"


def _why_not_examined(report: Report) -> str:
    crashed = [r.check for r in report.results if r.outcome is Outcome.ERROR]
    if crashed:
        return f"a check crashed: {', '.join(crashed)}"
    late = [r for r in report.results if r.outcome is Outcome.SKIPPED and r.reason.startswith("timed out")]
    if late:
        return late[0].reason
    if not report.looked:
        return "no check could look at anything"
    skipped = [r.check for r in report.results if r.outcome is Outcome.SKIPPED]
    return f"demanded, and not evaluated: {', '.join(skipped)}"
