"""What a run file says otherwise than the checks: how severe their findings are, and what these must exceed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gemma_doctor.check import GROUPS, Check
from gemma_doctor.errors import DoctorError, suggest
from gemma_doctor.finding import CheckResult, Finding, Outcome, Severity
from gemma_doctor.settings import Settings


def require_known(settings: Settings, checks: Sequence[Check]) -> None:
    """Refuse checks and thresholds that there are not.

    Raises:
        DoctorError: with a suggestion.
    """
    by_id = {one.id: one for one in checks}
    named = {
        "severity": settings.severity,
        "thresholds": settings.thresholds,
        "suppress": [one.check for one in settings.suppress],
    }
    for key, ids in named.items():
        for name in ids:
            if name not in by_id:
                hint = f"{name} is a group: name its checks" if name in GROUPS else "gemma-doctor list shows them all"
                raise DoctorError(f"{key}: there is no check {name!r}{suggest(name, by_id)}", hint)
    for name, values in settings.thresholds.items():
        known = by_id[name].thresholds
        for one in values:
            if one not in known:
                raise DoctorError(
                    f"thresholds: {name} has no threshold {one!r}{suggest(one, known)}",
                    f"it has: {', '.join(known) or 'none'}",
                )


def with_severities(results: Sequence[CheckResult], severity: Mapping[str, Severity]) -> tuple[CheckResult, ...]:
    """Findings above a note as severe as the run file says; notes stay notes. Outcomes follow."""

    def overruled(result: CheckResult) -> CheckResult:
        wanted = severity.get(result.check)
        if wanted is None or result.worst is None or result.worst is Severity.NOTE:
            return result
        findings = tuple(_as(finding, wanted) for finding in result.findings)
        outcome = Outcome.PASS if wanted is Severity.NOTE else Outcome.FAIL
        return replace(result, findings=findings, outcome=outcome)

    return tuple(map(overruled, results))


def _as(finding: Finding, severity: Severity) -> Finding:
    return finding if finding.severity is Severity.NOTE else replace(finding, severity=severity)


def overruled(settings: Settings) -> tuple[str, ...]:
    """What the report must say of it: one line, or none."""
    said = [f"{check} counts as {severity.word}" for check, severity in settings.severity.items()]
    for check, values in settings.thresholds.items():
        said += [f"{check}: {name} = {value:g}" for name, value in values.items()]
    return (f"as the run file says: {'; '.join(said)}",) if said else ()
