"""What every form of report says of findings, and in which order."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from gemma_doctor.finding import Finding, Report
from gemma_doctor.report.verdict import is_static
from gemma_doctor.report.where import where


def in_order(report: Report) -> tuple[Finding, ...]:
    """Causes, what follows from others, warnings, notes: each finding once."""
    return (*report.causes, *report.consequences, *report.warnings, *report.notes)


def account(finding: Finding, subject: Mapping[str, object], verbosity: int = 0) -> Iterator[tuple[str, str]]:
    """(label, text) of everything that a finding says besides its title. The texts are untrusted.

    Args:
        subject: of its report.
        verbosity: above 0, all layers and passes are listed.
    """
    do = f"{finding.do}; meanwhile {finding.meanwhile}" if finding.meanwhile else finding.do
    facts = (
        ("where", "; ".join(filter(None, (where(finding.where, subject, verbosity), _written_at(finding, subject))))),
        ("observed", finding.observed),
        ("expected", finding.expected),
        ("effect", finding.effect),
        ("wrong", finding.wrong_side),
        ("known", finding.known),
        ("do", do),
    )
    return ((label, text) for label, text in facts if text)


def commands(finding: Finding, report: Report) -> list[str]:
    """Commands that say more: the check's documentation and, where a layer is known, what it reads."""
    explain = f"gemma-doctor explain {finding.check}"
    if not finding.where.layers or is_static(report):
        return [explain]
    subject = shlex.quote(str(report.subject["name"]))
    return [explain, f"gemma-doctor heatmap {subject} --layers {finding.where.layers[0]}"]


def _written_at(finding: Finding, subject: Mapping[str, object]) -> str:
    """ "my-gemma/config.json, line 48"; empty where no line is known."""
    path = subject.get("config_file")
    return f"{path}, line {finding.line}" if path and finding.line is not None else ""
