"""Findings that are known are set aside: those that a run file suppresses, those of a baseline, and what follows from
them alone."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace

from gemma_doctor import suppression
from gemma_doctor.baseline import Comparison
from gemma_doctor.finding import CheckResult, Finding, Suppressed
from gemma_doctor.suppression import Reason, Suppression


def set_aside(
    results: Sequence[CheckResult],
    entries: Sequence[Suppression],
    compared: Comparison | None,
    today: datetime.date,
) -> tuple[tuple[CheckResult, ...], tuple[Suppressed, ...], tuple[str, ...]]:
    """Take the findings that are known out of the results.

    Args:
        results: after triage.
        entries: of the run file; they come first.
        compared: the findings beside the baseline; None if there is none.
        today: entries may expire.

    Returns:
        the results, whose outcomes stay; what was taken out of them, in order; and remarks for the headline.
    """
    findings = [finding for one in results for finding in one.findings]
    reasons = [suppression.reason_for(finding, entries, today) for finding in findings]
    remarks = suppression.remarks(results, entries, today)
    if compared is not None:
        reasons = [own or known for own, known in zip(reasons, compared.reasons, strict=True)]
        worse = {index for index in compared.worse if reasons[index] is None}
        # what is worse counts whatever it follows from
        findings = [replace(one, follows_from="") if at in worse else one for at, one in enumerate(findings)]
        remarks = (*remarks, *compared.remarks(worse))
    reasons = _with_consequences(findings, reasons)
    return _parted(results, findings, reasons, remarks)


def _with_consequences(findings: Sequence[Finding], reasons: Sequence[Reason | None]) -> list[Reason | None]:
    """What follows from a known finding is known as well, unless one of the same check that counts explains it, too."""
    told, found = list(reasons), True
    while found:
        found = False
        for index, finding in enumerate(findings):
            if told[index] is not None or not finding.follows_from:
                continue
            causes = [
                at
                for at, one in enumerate(findings)
                if one.check == finding.follows_from and one.severity >= finding.severity
            ]
            if causes and all(told[at] is not None for at in causes):
                told[index], found = told[causes[0]], True
    return told


def _parted(
    results: Sequence[CheckResult],
    findings: Sequence[Finding],
    reasons: Sequence[Reason | None],
    remarks: tuple[str, ...],
) -> tuple[tuple[CheckResult, ...], tuple[Suppressed, ...], tuple[str, ...]]:
    pairs = iter(zip(findings, reasons, strict=True))
    kept, known = [], []
    for result in results:
        left = []
        for finding, reason in (next(pairs) for _ in result.findings):
            if reason is None:
                left.append(finding)
            else:
                known.append(Suppressed(finding, reason.text, reason.source))
        kept.append(replace(result, findings=tuple(left)))
    return tuple(kept), tuple(known), remarks
