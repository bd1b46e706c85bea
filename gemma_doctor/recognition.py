"""Recognises public faults (see `advisories`) among the findings of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gemma_doctor.check import Check
from gemma_doctor.evidence import Advisories, Advisory
from gemma_doctor.finding import CheckResult, Finding, Outcome, Severity

CHECK = "known-release"


def recognised(
    results: Sequence[CheckResult], checks: Sequence[Check], advisories: Advisories
) -> tuple[CheckResult, ...]:
    """Name public faults where findings of this run show them, and say of known-release's own what became of them.

    An entry that this run reproduced is an error (a warning on a route that nobody declared) and follows from the
    finding that shows it; one whose checks all passed is a note. Two public faults are two causes: neither follows
    from the other.

    Args:
        results: after triage.
        checks: that ran.
        advisories: what concerns the subject.
    """
    declared = advisories.declared
    shown = {
        one.advisory.reference: [item for item in _findings(results) if fits(one.advisory, item)]
        for one in advisories.concerns
        if not one.elsewhere
    }
    concerns = {one.advisory.reference: one for one in advisories.concerns}
    public = {item.check: _known(item, shown) for item in _findings(results) if _known(item, shown)}

    def completed(item: Finding) -> Finding:
        if item.check == CHECK:
            concern = concerns[item.known]
            if shown.get(item.known):
                return _reproduced(item, [completed(one) for one in shown[item.known]], declared)
            right = concern.in_use and _came_out_right(concern.advisory, results, checks, declared)
            return _not_reproduced(item) if right else item
        known = _known(item, shown)
        if not known:
            return item
        another = not set(known) & set(public.get(item.follows_from, known))
        return replace(
            item,
            known=f"{known[0]}; reproduced by this run",
            do=concerns[known[0]].advisory.fix,
            meanwhile=item.meanwhile or concerns[known[0]].advisory.meanwhile,
            follows_from="" if another else item.follows_from,
        )

    return tuple(_with_outcome(replace(one, findings=tuple(map(completed, one.findings)))) for one in results)


def fits(advisory: Advisory, finding: Finding) -> bool:
    """A finding looks like this fault."""
    pattern = advisory.shown_by.get(finding.check)
    if pattern is None or (finding.where.route and advisory.routes and finding.where.route not in advisory.routes):
        return False
    return any(re.search(pattern, text) for text in (finding.title, finding.observed, finding.where.boundary))


def _with_outcome(result: CheckResult) -> CheckResult:
    """The outcome that its severities make; only known-release's change."""
    if result.check != CHECK or result.outcome not in (Outcome.PASS, Outcome.FAIL):
        return result
    sick = result.worst is not None and result.worst > Severity.NOTE
    return replace(result, outcome=Outcome.FAIL if sick else Outcome.PASS)


def _findings(results: Sequence[CheckResult]) -> list[Finding]:
    return [item for one in results for item in one.findings if item.check != CHECK]


def _known(finding: Finding, shown: Mapping[str, Sequence[Finding]]) -> tuple[str, ...]:
    """References of the entries that a finding shows."""
    return tuple(reference for reference, items in shown.items() if any(finding is one for one in items))


def _reproduced(item: Finding, showing: Sequence[Finding], declared: frozenset[str]) -> Finding:
    """known-release's finding of a fault that other checks saw. A refusal is only a note of theirs: it explains
    nothing, so that the known fault is the cause.
    """
    worst = max(showing, key=lambda one: (one.severity, not one.follows_from))
    bad = worst.severity is Severity.ERROR or worst.where.route in declared
    return replace(
        item,
        severity=Severity.ERROR if bad else Severity.WARNING,
        observed=f"{item.observed}; reproduced by this run ({worst.check}: {worst.observed})",
        follows_from="" if worst.severity is Severity.NOTE else worst.follows_from or worst.check,
    )


def _not_reproduced(item: Finding) -> Finding:
    return replace(item, severity=Severity.NOTE, observed=f"{item.observed}; not reproduced by this run")


def _came_out_right(
    advisory: Advisory, results: Sequence[CheckResult], checks: Sequence[Check], declared: frozenset[str]
) -> bool:
    """The checks that would show it looked, on every one of its routes that is in use, and found nothing."""
    outcomes = {one.check: one.outcome for one in results}
    routes_of = {one.id: {*one.routes} for one in checks}
    due = [
        name for name in advisory.shown_by if name in routes_of and (not routes_of[name] or routes_of[name] & declared)
    ]
    return bool(due) and all(outcomes.get(name) is Outcome.PASS for name in due)
