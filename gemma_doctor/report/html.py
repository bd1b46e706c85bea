"""The report as one HTML page for people: it loads nothing, runs no script, and is read on a phone, on paper, at night.

What is broken, where and what to do stand first; whatever only a careful reader wants is folded, and opens without a
script.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jinja2
from markupsafe import Markup

from gemma_doctor.finding import CheckResult, Finding, Outcome, Report, Severity
from gemma_doctor.report import drawing, verdict
from gemma_doctor.report.account import account, commands
from gemma_doctor.report.drawing import CellsDrawing, CurveDrawing
from gemma_doctor.report.escape import escape
from gemma_doctor.report.heading import heading, subject_name
from gemma_doctor.report.ran import took
from gemma_doctor.report.reading_path import by_group, group_mark, mark, sentence, skipped_by_reason

# No source of anything but the style that stands in the page itself.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
# Of a verdict and of a mark; "unsure" of any other.
TONES = {"SICK": "bad", "WARNING": "warn", "HEALTHY": "good", "NO FAULT FOUND": "good", "NO NEW FAULT": "good"}
MARK_TONES = {"FAIL": "bad", "CRASH": "unsure", "warn": "warn", "known": "faint", "ok": "good", "n/a": "faint"}
SEVERITY_TONES = {Severity.ERROR: "bad", Severity.WARNING: "warn", Severity.NOTE: "faint"}


@dataclass(frozen=True)
class Block:
    """A finding and all that is shown of it.

    Attributes:
        word: what it is in this report: cause, consequence, warning or note.
        facts: what it says, but for what to do: (label, text).
        curve: what its check measured, at the first of its findings.
        documentation: of its check, lines.
        below: what follows from it.
    """

    finding: Finding
    word: str
    facts: tuple[tuple[str, str], ...]
    do: str
    commands: tuple[str, ...] = ()
    cells: CellsDrawing | None = None
    curve: CurveDrawing | None = None
    documentation: tuple[str, ...] = ()
    below: tuple[Block, ...] = ()

    @property
    def tone(self) -> str:
        return SEVERITY_TONES[self.finding.severity]


@dataclass(frozen=True)
class Looked:
    """A check on the reading path; its curve, if no finding shows it."""

    check: str
    mark: str
    sentence: str
    curve: CurveDrawing | None


@dataclass(frozen=True)
class Layer:
    """A layer of the reading path and its checks."""

    name: str
    mark: str
    checks: tuple[Looked, ...]


def render(report: Report) -> str:
    """The page. Every text of the report passes through `escape`, then through jinja2's own escaping."""
    word = verdict.verdict(report)
    return (
        _environment()
        .get_template("report.html")
        .render(
            policy=POLICY,
            report=report,
            name=subject_name(report),
            verdict=word,
            tone=TONES.get(word, "unsure"),
            rest=verdict.headline(report).removeprefix(word).lstrip(":, "),
            exit_reason=verdict.exit_reason(report),
            sections=[(title, blocks) for title, blocks in _sections(report) if blocks],
            layers=[_layer(name, results) for name, results in by_group(report).items()],
            skipped=skipped_by_reason(report),
            crashed=[one for one in report.results if one.outcome is Outcome.ERROR],
            facts=[line.label + line.body for line in heading(report, verbosity=1) if line.body not in report.remarks],
            took=took(report),
            size=(drawing.WIDTH, drawing.HEIGHT),
            box=(drawing.LEFT, drawing.RIGHT, drawing.TOP, drawing.BOTTOM),
        )
    )


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gemma_doctor.report", ""),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"mark_tone": lambda word: MARK_TONES.get(word, "unsure"), "runs": drawing.runs}
    return environment


def _shown(value: object) -> str:
    """What the template is about to write, of whatever type: safe to show. Its own markup passes as it is."""
    return value if isinstance(value, Markup) else escape(str(value))


# --- findings --------------------------------------------------------------------------------------------------------


def _sections(report: Report) -> Iterator[tuple[str, list[Block]]]:
    """Titles and findings in the order of the page; what follows from a finding hangs below it, once."""
    waiting: dict[str, list[Finding]] = {}
    for finding in report.consequences:
        waiting.setdefault(finding.follows_from, []).append(finding)
    shown: set[str] = set()
    for word, findings in (("cause", report.causes), ("warning", report.warnings), ("note", report.notes)):
        title = word.capitalize() if len(findings) == 1 else f"{word.capitalize()}s"
        yield title, [_block(one, word, report, shown, waiting.pop(one.check, ())) for one in findings]
    # of causes that stand nowhere themselves: a suppressed one, say
    left = [one for findings in waiting.values() for one in findings]
    yield "What follows from others", [_block(one, "consequence", report, shown) for one in left]


def _block(finding: Finding, word: str, report: Report, shown: set[str], consequences: Sequence[Finding] = ()) -> Block:
    """One finding; `shown` holds the checks whose curve and documentation stand on the page already."""
    told = dict(account(finding, report.subject))
    do = told.pop("do", "")
    is_first = finding.check not in shown
    shown.add(finding.check)
    documentation = report.documentation.get(finding.check, "") if is_first else ""
    return Block(
        finding=finding,
        word=word,
        facts=tuple(told.items()),
        do=do,
        commands=tuple(commands(finding, report)),
        cells=drawing.cells_drawing(finding.cells) if finding.cells else None,
        curve=_curve_of(report, finding.check) if is_first else None,
        documentation=tuple(documentation.splitlines()),
        below=tuple(_block(one, "consequence", report, shown) for one in consequences),
    )


def _curve_of(report: Report, check: str) -> CurveDrawing | None:
    examined = next((one.examined for one in report.results if one.check == check), None)
    return drawing.curve_drawing(examined.curve) if examined and examined.curve else None


# --- the reading path ------------------------------------------------------------------------------------------------


def _layer(name: str, results: Sequence[CheckResult]) -> Layer:
    return Layer(name, group_mark(results), tuple(map(_looked, results)))


def _looked(result: CheckResult) -> Looked:
    curve = result.examined.curve if result.examined and not result.findings else None
    return Looked(result.check, mark(result), sentence(result), drawing.curve_drawing(curve) if curve else None)
