"""The report for programs: one JSON document, described by report.schema.json beside this file.

Two runs on the same subject with the same seed give the same bytes, but for the object `timing`.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import PurePath
from typing import Any

from gemma_doctor.finding import CheckResult, Examined, Finding, Outcome, Report
from gemma_doctor.fingerprint import fingerprints
from gemma_doctor.report import verdict

SCHEMA_VERSION = 1


def schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    text = files("gemma_doctor.report").joinpath("report.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def render(report: Report) -> str:
    """The report as JSON, pure ASCII (whatever a model's name holds, no terminal acts on it), ending in a newline."""
    known = [one.finding for one in report.suppressed]
    prints = iter(fingerprints((*report.findings, *known)))
    document = {
        "schema_version": SCHEMA_VERSION,
        "gemma_doctor": report.version,
        "verdict": verdict.verdict(report),
        "exit_code": report.exit_code,
        "exit_reason": verdict.exit_reason(report),
        "fail_on": report.fail_on.word if report.fail_on else "never",
        "interrupted": report.interrupted,
        "subject_source": report.subject["subject_source"],
        "subject": {key: value for key, value in report.subject.items() if key != "subject_source"},
        "environment": report.environment,
        "passes": report.passes,
        "remarks": report.remarks,
        "counts": _counts(report),
        "results": [_result(result, prints) for result in report.results],
        "suppressed": [
            {"finding": _finding(one.finding, next(prints)), "reason": one.reason, "source": one.source}
            for one in report.suppressed
        ],
        "timing": report.timing,
    }
    return dumped(document)


def _counts(report: Report) -> dict[str, int]:
    return {
        "causes": len(report.causes),
        "consequences": len(report.consequences),
        "warnings": len(report.warnings),
        "notes": len(report.notes),
        "suppressed": len(report.suppressed),
        **{outcome.value: report.count(outcome) for outcome in Outcome},
    }


def _result(result: CheckResult, prints: Iterator[str]) -> dict[str, Any]:
    return {
        "check": result.check,
        "group": result.group,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "examined": _examined(result.examined) if result.examined else None,
        "findings": [_finding(finding, next(prints)) for finding in result.findings],
    }


def _examined(examined: Examined) -> dict[str, Any]:
    """With its curve where there is one."""
    told = asdict(examined)
    return told if examined.curve else {key: value for key, value in told.items() if key != "curve"}


def _finding(finding: Finding, fingerprint: str) -> dict[str, Any]:
    """Of its figure only the file's name: the folder is known to whoever named it."""
    return {
        **asdict(finding),
        "severity": finding.severity.word,
        "figure": PurePath(finding.figure).name,
        "fingerprint": fingerprint,
    }


def dumped(content: Any) -> str:
    """A document as every command writes it: pure ASCII, no NaN, ending in a newline."""
    return json.dumps(plain(content), indent=2, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """`value` in what JSON has: keys are texts, numpy values become numbers and lists, NaN and infinities null."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if hasattr(value, "tolist"):  # numpy, without importing it; some of its numbers are Python floats too
        return plain(value.tolist())
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=repr)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)
