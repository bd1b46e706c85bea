"""The report of a drill: for people what was not noticed first, for programs one document (drill.schema.json).

Two drills of the same subject with the same seed give the same bytes, but for the object `timing`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from gemma_doctor.drilled import BROKEN, Drilled, DrillReport, Verdict
from gemma_doctor.finding import counted
from gemma_doctor.report.heading import heading, subject_name
from gemma_doctor.report.json import dumped
from gemma_doctor.report.lines import BLANK, Line, draw

SCHEMA_VERSION = 1

STYLES = {"NOTICED": "bold green", "MISSED": "bold red", "WRONG CAUSE": "bold red"}
MARKS = {
    Verdict.CAUGHT: ("caught", "green"),
    Verdict.MISSED: ("MISSED", "bold red"),
    Verdict.WRONG: ("WRONG CAUSE", "bold red"),
    Verdict.CRASHED: ("CRASHED", "bold magenta"),
    Verdict.NOT_UNDONE: ("NOT UNDONE", "bold magenta"),
}


# --- in a few words --------------------------------------------------------------------------------------------------


def verdict(report: DrillReport) -> str:
    """One word or two: INTERRUPTED, STOPPED, NOTHING DRILLED, MISSED, WRONG CAUSE, CRASHED or NOTICED."""
    if report.interrupted:
        return "INTERRUPTED"
    if report.stopped:
        return "STOPPED"
    if not report.applicable:
        return "NOTHING DRILLED"
    if report.count(Verdict.MISSED):
        return "MISSED"
    if report.count(Verdict.WRONG):
        return "WRONG CAUSE"
    return "CRASHED" if report.count(Verdict.CRASHED) else "NOTICED"


def headline(report: DrillReport) -> str:
    """The verdict with its figures and on what: "NOTICED 71 of 71 applicable faults on gemma-3-4b-it (skeleton)"."""
    word = verdict(report)
    on = f"on {subject_name(report)}{' (skeleton)' if report.subject['weights'] == 'skeleton' else ''}"
    asked = len(report.drilled) + report.left
    if word == "NOTHING DRILLED":
        return f"{word} {on}: {counted(asked, 'fault')}, none applicable"
    if word in ("INTERRUPTED", "STOPPED"):
        return f"{word} after {len(report.drilled)} of {counted(asked, 'fault')} {on}: {_outcome(report)}"
    return f"{_outcome(report)} {on}"


def _outcome(report: DrillReport) -> str:
    """ "NOTICED 3 of 3 applicable faults", "MISSED 2, WRONG CAUSE 1 of 71 applicable faults"."""
    bad = [
        f"{MARKS[one][0]} {report.count(one)}" for one in (Verdict.MISSED, Verdict.WRONG, *BROKEN) if report.count(one)
    ]
    said = ", ".join(bad) or f"NOTICED {report.count(Verdict.CAUGHT)}"
    out = report.count(Verdict.LEFT_OUT)
    more = f", {out} left out of the gate," if out else ""
    return f"{said} of {counted(report.applicable, 'applicable fault')}{more}"


def score(report: DrillReport) -> str:
    """ "score 71 of 71 applicable (100 %); 12 not applicable, 10 not yet covered". Rounded down: 100 is all."""
    caught = report.count(Verdict.CAUGHT)
    share = f" ({100 * caught // report.applicable} %)" if report.applicable else ""
    others = [f"{report.count(Verdict.NOT_APPLICABLE)} not applicable"]
    if report.count(Verdict.LEFT_OUT):
        others.append(f"{report.count(Verdict.LEFT_OUT)} left out of the gate")
    others.append(f"{report.count(Verdict.NOT_COVERED)} not yet covered")
    if report.left:
        others.append(f"{report.left} not drilled")
    return f"score {caught} of {report.applicable} applicable{share}; {', '.join(others)}"


def exit_reason(report: DrillReport) -> str:
    """Why the exit code is what it is."""
    if report.stopped:
        return report.stopped
    if not report.applicable:
        return "no fault was applicable"
    crashed = report.count(Verdict.CRASHED)
    if crashed:
        return f"{counted(crashed, 'fault')} could not be drilled"
    if report.not_caught:
        return f"{counted(len(report.not_caught), 'applicable fault')} not caught by the right check"
    return "every applicable fault was caught by the right check"


def in_short(one: Drilled) -> str:
    """What a person needs who only sees the log of a gate: one fault that was not caught, in one line."""
    return f"{MARKS[one.verdict][0]} {one.fault}: {one.caught_by} expected, {_found(one)}"


def _found(one: Drilled) -> str:
    if one.reason:
        return one.reason
    return f"{', '.join(one.causes)} found" if one.causes else "nothing found"


# --- for people ------------------------------------------------------------------------------------------------------


def text(report: DrillReport, width: int | None = None, color: bool = False, verbosity: int = 0) -> str:
    """The report as text.

    Args:
        report: what to show.
        width: columns of the terminal, None for a pipe (no wrapping).
        color: write ANSI colour codes.
        verbosity: -1 headline, what was not caught, and exit code; 0 the usual; 1 also the names of consequences.
    """
    return draw(_quiet(report) if verbosity < 0 else _full(report, verbosity), width, color)


def _quiet(report: DrillReport) -> Iterator[Line]:
    yield _headline(report)
    yield from _uncaught(report)
    yield _exit_line(report)


def _full(report: DrillReport, verbosity: int) -> Iterator[Line]:
    yield _headline(report)
    yield from heading(report, verbosity)
    yield from _uncaught(report)
    yield from _every_fault(report, verbosity)
    yield from _not_put_in(report)
    yield BLANK
    yield Line(body=score(report), indent=2)
    yield _exit_line(report)


def _headline(report: DrillReport) -> Line:
    word = verdict(report)
    return Line(word, headline(report).removeprefix(word), style=STYLES.get(word, "bold magenta"), indent=2)


def _uncaught(report: DrillReport) -> Iterator[Line]:
    for one in report.not_caught:
        word, style = MARKS[one.verdict]
        yield BLANK
        yield Line(f"{word}  ", one.fault, style=style, body_style="bold", indent=4)
        facts = (
            ("done", one.title),
            ("expected", f"{one.caught_by} as the only cause"),
            ("found", ", ".join(one.causes) or ("" if one.reason else "nothing")),
            ("follow", ", ".join(one.consequences)),
            ("observed", one.observed or (f"nothing by {one.caught_by}" if one.causes else "")),
            ("reason", one.reason),
        )
        for label, said in facts:
            if said:
                yield Line(f"  {label:<8}  ", said, style="dim")


def _every_fault(report: DrillReport, verbosity: int) -> Iterator[Line]:
    """One line per fault that was put in, by layer of the reading path."""
    groups: dict[str, list[Drilled]] = {}
    for one in report.drilled:
        if one.put_in:
            groups.setdefault(one.group, []).append(one)
    every = [one for ones in groups.values() for one in ones]
    mark = max((len(MARKS[one.verdict][0]) for one in every), default=0)
    fault = max((len(one.fault) for one in every), default=0)
    cause = max((len(one.caught_by) for one in every), default=0)
    if every:
        more = "" if verbosity else " (-v)"
        yield BLANK
        yield Line("faults", f"   the check that was the cause, time, +N checks that follow{more}", style="bold")
    for group, ones in groups.items():
        yield Line(f"{group}  ", f"{sum(one.verdict is Verdict.CAUGHT for one in ones)} of {len(ones)}", style="bold")
        for one in ones:
            word, style = MARKS[one.verdict]
            follow = f"  +{len(one.consequences)}" if one.consequences else ""
            said = f"{', '.join(one.causes) or '-':<{cause}}  {_seconds(one.seconds):>3} s{follow}"
            label = f"  {word:<{mark}}  {one.fault:<{fault}}  "
            yield Line(label, said, style=style, indent=4 + mark)
            if follow and verbosity:
                yield Line(" " * (4 + mark) + "follow  ", ", ".join(one.consequences), style="dim")


def _not_put_in(report: DrillReport) -> Iterator[Line]:
    """By reason what was left out and what was not applicable; by check what waits for it."""
    titles = {
        Verdict.LEFT_OUT: ("left out of the gate", "   it would not notice"),
        Verdict.NOT_APPLICABLE: ("not applicable", ""),
    }
    for verdict, title in titles.items():
        reasons: dict[str, list[str]] = {}
        for one in report.drilled:
            if one.verdict is verdict:
                reasons.setdefault(one.reason, []).append(one.fault)
        if reasons:
            yield BLANK
            yield Line(*title, style="bold")
        for reason, faults in reasons.items():
            yield Line("  ", f"{', '.join(faults)}: {reason}", indent=4)
    waiting: dict[str, list[str]] = {}
    for one in report.drilled:
        if one.verdict is Verdict.NOT_COVERED:
            waiting.setdefault(one.caught_by, []).append(one.fault)
    if waiting:
        yield BLANK
        yield Line("not yet covered", "   by a check of this release", style="bold")
        for check, faults in waiting.items():
            yield Line("  ", f"{', '.join(faults)}: {'waits' if len(faults) == 1 else 'wait'} for {check}", indent=4)


def _exit_line(report: DrillReport) -> Line:
    spent = f"{_seconds(report.timing['total'])} s: the healthy subject {_seconds(report.timing['healthy'])}"
    put_in = [one.seconds for one in report.drilled if one.seconds]
    if put_in:
        spent += f", {counted(len(put_in), 'fault')} {_seconds(sum(put_in))}"
    return Line(f"exit {report.exit_code}", f" ({exit_reason(report)})   {spent}", style="bold", indent=2)


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


# --- for programs ----------------------------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    written = files("gemma_doctor.report").joinpath("drill.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(written)
    return loaded


def document(report: DrillReport) -> str:
    """The report as JSON, pure ASCII, ending in a newline."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "gemma_doctor": report.version,
        "verdict": verdict(report),
        "exit_code": report.exit_code,
        "exit_reason": exit_reason(report),
        "interrupted": report.interrupted,
        "stopped": report.stopped,
        "subject_source": report.subject["subject_source"],
        "subject": {key: value for key, value in report.subject.items() if key != "subject_source"},
        "environment": report.environment,
        "passes": report.passes,
        "remarks": report.remarks,
        "score": _score(report),
        "faults": [_fault(one) for one in report.drilled],
        "timing": {**report.timing, "faults": _times(report.drilled)},
    }
    return dumped(content)


def _score(report: DrillReport) -> dict[str, int]:
    return {
        "applicable": report.applicable,
        **{one.name.lower(): report.count(one) for one in Verdict},
        "not_drilled": report.left,
    }


def _fault(one: Drilled) -> dict[str, Any]:
    return {
        "fault": one.fault,
        "group": one.group,
        "done": one.title,
        "caught_by": one.caught_by,
        "verdict": one.verdict.value,
        "causes": one.causes,
        "consequences": one.consequences,
        "observed": one.observed,
        "reason": one.reason,
    }


def _times(drilled: Sequence[Drilled]) -> Mapping[str, float]:
    return {one.fault: one.seconds for one in drilled if one.seconds}
