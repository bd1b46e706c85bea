"""The report as SARIF 2.1.0 (OASIS Standard, with Errata 01), for code scanning and for editors.

A rule is a check, with its documentation; a result is a finding. Where the subject has a configuration file, results
point into it. What could not be looked at is a notification of the invocation: it is no result, and no silence either.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import quote

from gemma_doctor import documentation
from gemma_doctor.finding import CheckResult, Finding, Outcome, Report, Severity, Suppressed, ranges
from gemma_doctor.fingerprint import fingerprints
from gemma_doctor.report import verdict
from gemma_doctor.report.account import account
from gemma_doctor.report.escape import escape
from gemma_doctor.report.heading import subject_name

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
# The version of what fingerprint.py counts as the same fault.
FINGERPRINT = "gemmaDoctor/v1"
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
# The base of relative paths, by the name that code scanning gives it.
ROOT = "%SRCROOT%"


def render(report: Report) -> str:
    """One SARIF log with one run, pure ASCII, ending in a newline."""
    known = [one.finding for one in report.suppressed]
    prints = fingerprints((*report.findings, *known))
    indices = {result.check: index for index, result in enumerate(report.results)}
    found = [_result(one, mark, indices, report) for one, mark in zip(report.findings, prints, strict=False)]
    run: dict[str, Any] = {
        "tool": {"driver": _driver(report)},
        "automationDetails": {"id": f"gemma-doctor/{escape(str(report.subject['name']))}/"},
        "invocations": [_invocation(report, indices)],
        "originalUriBaseIds": {ROOT: {"description": {"text": "the folder in which gemma-doctor was run"}}},
        "columnKind": "unicodeCodePoints",
        "results": [
            *found,
            *(
                {**_result(one.finding, mark, indices, report), "suppressions": [_suppression(one)]}
                for one, mark in zip(report.suppressed, prints[len(found) :], strict=True)
            ),
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


# --- rules -----------------------------------------------------------------------------------------------------------


def _driver(report: Report) -> dict[str, Any]:
    return {
        "name": "gemma-doctor",
        "version": report.version,
        "semanticVersion": report.version,
        "rules": [_rule(result, report.documentation.get(result.check, "")) for result in report.results],
    }


def _rule(result: CheckResult, text: str) -> dict[str, Any]:
    """One check. One that says nothing of itself is described by its id."""
    about = documentation.read(text or result.check)
    rule = {
        "id": result.check,
        "shortDescription": _message(about.title),
        "fullDescription": _message(about.proves),
        "help": {
            "text": _braced(_plain("\n\n".join(f"{name}\n{body}" for name, body in _sections(about)))),
            "markdown": _braced(_plain("\n\n".join(f"## {name}\n\n{body}" for name, body in _sections(about)))),
        },
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": [result.group]},
    }
    return rule if about.link is None else {**rule, "helpUri": about.link}


def _sections(about: documentation.Documentation) -> list[tuple[str, str]]:
    return list(about.sections.items()) or [("What it proves", about.title)]


# --- results ---------------------------------------------------------------------------------------------------------


def _result(finding: Finding, mark: str, indices: Mapping[str, int], report: Report) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.check,
        "ruleIndex": indices[finding.check],
        "level": LEVELS[finding.severity],
        "message": _message(_told(finding, report)),
        "partialFingerprints": {FINGERPRINT: mark},
        "properties": {
            "title": finding.title,
            **{label: text for label, text in account(finding, report.subject) if label != "where"},
            **({"followsFrom": finding.follows_from} if finding.follows_from else {}),
        },
    }
    location = _location(finding, report.subject.get("config_file"))
    return {**result, "locations": [location]} if location else result


def _told(finding: Finding, report: Report) -> str:
    """The title is a sentence of its own: where there is little room it is all that is shown."""
    lines = [f"{label}: {text}" for label, text in account(finding, report.subject)]
    lines += [f"follows from: {finding.follows_from}"] if finding.follows_from else []
    return "\n".join([f"{finding.title}.", *lines])


def _location(finding: Finding, path: object) -> dict[str, Any]:
    """Where the finding stands: in the configuration file, if the subject has one; in layers, passes and a route."""
    location: dict[str, Any] = {}
    if path:
        region = {"region": {"startLine": finding.line}} if finding.line is not None else {}
        location["physicalLocation"] = {"artifactLocation": _artifact(str(path)), **region}
    where = finding.where
    named = [
        *(("layer" if one.isdecimal() else "layers", one) for one in ranges(where.layers)),
        *(("pass", one) for one in where.passes),
        *([("route", where.route)] if where.route else []),
    ]
    if named:
        location["logicalLocations"] = [
            {"name": escape(name), "fullyQualifiedName": f"{kind} {escape(name)}", "kind": kind} for kind, name in named
        ]
    return location


def _artifact(path: str) -> dict[str, str]:
    """A relative path has a base; an absolute one is a URI of its own."""
    if PureWindowsPath(path).is_absolute():
        return {"uri": PureWindowsPath(path).as_uri()}
    if path.startswith("/"):
        return {"uri": PurePosixPath(path).as_uri()}
    return {"uri": quote(path, errors="surrogateescape"), "uriBaseId": ROOT}


def _suppression(one: Suppressed) -> dict[str, str]:
    """It stands outside of what was examined: in a run file or a baseline."""
    return {"kind": "external", "status": "accepted", "justification": f"{one.source}: {_plain(one.reason)}"}


# --- the run ---------------------------------------------------------------------------------------------------------


def _invocation(report: Report, indices: Mapping[str, int]) -> dict[str, Any]:
    said: list[dict[str, Any]] = [
        {
            "level": "error" if result.outcome is Outcome.ERROR else "warning",
            "message": _message(f"{result.check} could not be evaluated: {result.reason}"),
            "associatedRule": {"id": result.check, "index": indices[result.check]},
        }
        for result in report.results
        if result.outcome in (Outcome.ERROR, Outcome.SKIPPED)
    ]
    said += [{"level": "note", "message": _message(remark)} for remark in report.remarks]
    facts = {**report.subject, **report.environment}
    return {
        "executionSuccessful": report.exit_code in (0, 1),
        "exitCode": report.exit_code,
        "exitCodeDescription": verdict.exit_reason(report),
        "toolExecutionNotifications": said,
        "properties": {
            "headline": verdict.headline(report),
            "subject": subject_name(report),
            **{name: facts[name] for name in ("family", "weights", "transformers", "torch") if facts.get(name)},
        },
    }


# --- texts -----------------------------------------------------------------------------------------------------------


def _message(text: str) -> dict[str, str]:
    return {"text": _braced(_plain(text))}


def _plain(text: str) -> str:
    """Untrusted text in lines; what would be read as a link stays text (section 3.11.6 of the standard)."""
    return "\n".join(escape(line) for line in text.split("\n")).replace("](", "] (")


def _braced(text: str) -> str:
    """Single braces are placeholders (section 3.11.5)."""
    return text.replace("{", "{{").replace("}", "}}")
