"""The file of a baseline: JSON that is read in a diff and edited by hand, described by report/baseline.schema.json."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemma_doctor.baseline import SOURCE, SUBJECT_KEYS, Baseline, KnownFinding, conditions, difference, subject_of
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import FIGURES, RecordedFigure
from gemma_doctor.finding import Outcome, Report, Severity, ranges
from gemma_doctor.fingerprint import fingerprints
from gemma_doctor.json_file import read_mapping

if TYPE_CHECKING:
    from gemma_doctor.settings import Settings

SCHEMA_VERSION = 1
HINT = "--update-baseline writes a new one where there is none"
TOLERANCES = ("absolute_tolerance", "relative_tolerance")
DECIMALS = {"tokens_per_second": 2, "peak_memory_mb": 0}  # of losses, four


# --- reading ---------------------------------------------------------------------------------------------------------


def baseline_of(settings: Settings) -> Baseline | None:
    """The baseline of a run; None if it has none, or is to write the first.

    Raises:
        DoctorError: it cannot be read, or is none.
    """
    if settings.baseline is None or (settings.update_baseline and not Path(settings.baseline).exists()):
        return None
    return read(settings.baseline)


def read(path: str) -> Baseline:
    """The baseline in a file.

    Raises:
        DoctorError: it cannot be read, or is none.
    """
    document = read_mapping(Path(path), HINT)
    version = document.get("schema_version")
    if version != SCHEMA_VERSION or "findings" not in document:
        raise DoctorError(f"{path}: is no baseline (schema_version {version!r}, not {SCHEMA_VERSION})", HINT)
    try:
        return Baseline(
            path=path,
            subject={key: _text(_mapping(document, "subject"), key) for key in SUBJECT_KEYS},
            measured_with=_mapping(document, "measured_with"),
            passes=_texts(document, "passes"),
            findings={mark: _finding(one) for mark, one in _mapping(document, "findings").items()},
            figures={name: _figure(name, one) for name, one in _mapping(document, "figures").items()},
        )
    except ValueError as error:
        raise DoctorError(f"{path}: is no baseline: {error}", HINT) from None


def _mapping(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key} is no mapping")
    return value


def _text(document: Mapping[str, Any], key: str) -> str:
    value = document.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r}, no text")
    return value


def _texts(document: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = document.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{key} is no list of texts")
    return tuple(value)


def _finding(value: object) -> KnownFinding:
    if not isinstance(value, dict):
        raise ValueError("a finding is no mapping")
    severities = {one.word: one for one in Severity}
    severity = value.get("severity")
    if severity not in severities:
        raise ValueError(f"a finding has the severity {severity!r}; it takes {', '.join(severities)}")
    return KnownFinding(
        check=_text(value, "check"),
        title=_text(value, "title"),
        severity=severities[severity],
        layers=_layers(_text(value, "layers")),
        passes=_texts(value, "passes"),
        route=_text(value, "route"),
        reason=_text(value, "reason"),
        value=_text(value, "value"),
    )


def _layers(text: str) -> tuple[int, ...]:
    """ "0-2, 4" gives (0, 1, 2, 4)."""
    found: list[int] = []
    for part in filter(None, text.split(", ")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or len(part) > 9:
            raise ValueError(f"layers are {text!r}; write 0-4, 6-10")
        found += range(int(first), min(int(last or first), 9999) + 1)
    return tuple(found)


def _figure(name: str, value: object) -> RecordedFigure:
    if name not in FIGURES:
        raise ValueError(f"there is no figure {name!r}; known: {', '.join(FIGURES)}")
    if not isinstance(value, dict) or not any(value.keys() == {"value", one} for one in TOLERANCES):
        raise ValueError(f"{name} takes value and either {' or '.join(TOLERANCES)}")
    for key, number in value.items():
        is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
        if not is_number or not math.isfinite(number) or number < 0:
            raise ValueError(f"{key} of {name} is {number!r}; it takes a number of at least 0")
    return RecordedFigure(**value)


# --- writing ---------------------------------------------------------------------------------------------------------


def render(report: Report, old: Baseline | None) -> str:
    """The file that a run with --update-baseline writes: pure ASCII, in an order that does not change.

    Args:
        report: of that run: what is suppressed as known to the baseline is what the file holds.
        old: what the file held. Findings of checks that did not look this time stay, figures that were not measured
            stay where they are comparable, and what people wrote (reasons, tolerances) stays.
    """
    now = conditions(report.subject, report.environment, report.passes)
    used = {key: old.measured_with.get(key) if old and value is None else value for key, value in now.items()}
    ran: Any = report.passes.get("ran", ())
    document = {
        "schema_version": SCHEMA_VERSION,
        "gemma_doctor": report.version,
        "subject": subject_of(*(str(report.subject[key]) for key in SUBJECT_KEYS)),
        "measured_with": used,
        "passes": [one["name"] for one in ran],
        "findings": _findings(report, old),
        "figures": _figures(report, old, used),
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _findings(report: Report, old: Baseline | None) -> dict[str, Any]:
    """By fingerprint, in the order of checks and titles, so that a change is one hunk of a diff."""
    every = (*report.findings, *(one.finding for one in report.suppressed))
    sources = (*("" for _ in report.findings), *(one.source for one in report.suppressed))
    before = old.findings if old is not None else {}
    looked = {one.check for one in report.results if one.outcome in (Outcome.PASS, Outcome.FAIL)}
    kept = {mark: one for mark, one in before.items() if one.check not in looked}
    for mark, finding, source in zip(fingerprints(every), every, sources, strict=True):
        if source == SOURCE:
            reason = before[mark].reason if mark in before else ""
            where = finding.where
            kept[mark] = KnownFinding(
                check=finding.check,
                title=finding.title,
                severity=finding.severity,
                layers=where.layers,
                passes=where.passes,
                route=where.route,
                reason=reason,
                value=finding.observed if finding.keys else "",
            )
    ordered = sorted(kept.items(), key=lambda item: (item[1].check, item[1].title, item[0]))
    return {mark: _written(one) for mark, one in ordered}


def _written(one: KnownFinding) -> dict[str, Any]:
    """What is empty is left out."""
    told: dict[str, Any] = {"check": one.check, "title": one.title, "severity": one.severity.word}
    more = {
        "layers": ", ".join(ranges(one.layers)),
        "passes": [*one.passes],
        "route": one.route,
        "reason": one.reason,
        "value": one.value,
    }
    return told | {key: value for key, value in more.items() if value}


def _figures(report: Report, old: Baseline | None, used: Mapping[str, Any]) -> dict[str, Any]:
    measured = measured_figures(report)
    before = old.figures if old is not None else {}
    told = {}
    for name, kind in FIGURES.items():
        usual = RecordedFigure(0.0, kind.absolute_tolerance, kind.relative_tolerance)
        recorded = before.get(name, usual)
        comparable = old is not None and name in before and not difference(old.measured_with, used, name)
        if name in measured or comparable:
            value = round(measured[name], DECIMALS.get(name, 4)) if name in measured else recorded.value
            tolerances = zip(TOLERANCES, (recorded.absolute_tolerance, recorded.relative_tolerance), strict=True)
            told[name] = {"value": value, **{key: number for key, number in tolerances if number is not None}}
    return told


def measured_figures(report: Report) -> dict[str, float]:
    """Figures of a run, by name: those of its checks, and those of its long generation. A skeleton has none."""
    if report.subject["weights"] != "real":
        return {}
    of_checks = {name: value for one in report.results if one.examined for name, value in one.examined.figures.items()}
    every = {**of_checks, **report.timing}
    return {name: float(every[name]) for name in FIGURES if name in every}
