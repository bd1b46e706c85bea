"""Causes and consequences: which finding follows from which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gemma_doctor import routes
from gemma_doctor.check import GROUPS, Check
from gemma_doctor.evidence import LONG_TEXT
from gemma_doctor.finding import CheckResult, Finding, Severity

# Passes of which only the outcome is known: whatever is wrong in any other may be wrong there.
UNWATCHED = (LONG_TEXT,)


def triage(results: Sequence[CheckResult], checks: Sequence[Check]) -> tuple[CheckResult, ...]:
    """Say of each finding which other it follows from.

    The reading path is a chain. An error explains another one when its gate stands earlier and its place covers the
    other's (see `Location.can_explain`); the earliest such error is the cause.

    What routes measure are logits: they stand behind all that decides them. Plain generation and plain forwards stand
    before the routes that are built on them, and whatever is wrong in any pass may be wrong on those.

    Warnings of other checks follow from nothing: they are of memory and time, which no wrong position costs. Those of
    an unwatched pass may follow from a warning of a route as well: both feed tokens in a way that may not be in use.
    """
    gates = {one.id: one.gate for one in checks}

    def gate(finding: Finding) -> tuple[int, int]:
        if finding.where.route:
            return GROUPS.index("numerics"), 2 if finding.where.route in routes.PLAIN else 3
        # what another group's check only saw there stands after that group's own checks
        return (GROUPS.index(finding.gate), 2) if finding.gate else gates[finding.check]

    every = [item for one in results for item in one.findings]
    errors = sorted((one for one in every if one.severity is Severity.ERROR), key=gate)
    of_routes = sorted((one for one in every if one.severity is Severity.WARNING and one.where.route), key=gate)

    def explained(finding: Finding) -> Finding:
        route, placed = finding.where.route, finding.where.passes or finding.where.route
        unwatched = bool(finding.where.passes) and set(finding.where.passes) <= set(UNWATCHED)
        built_on = route not in ("", *routes.PLAIN) or unwatched
        least = Severity.WARNING if route or unwatched else Severity.ERROR
        if finding.standing or not placed or finding.severity < least:
            return finding
        where = replace(finding.where, passes=()) if built_on else finding.where
        bases = {one.where.route for one in every} - {""} if unwatched else routes.PLAIN
        warned = of_routes if unwatched and finding.severity is Severity.WARNING else []
        for cause in (*errors, *warned):
            earlier = gate(cause) < gate(finding) and cause.check != finding.check
            stands_on_it = built_on and cause.where.route in bases
            if earlier and (stands_on_it or cause.where.can_explain(where)):
                return replace(finding, follows_from=cause.check)
        return finding

    return tuple(replace(one, findings=tuple(explained(item) for item in one.findings)) for one in results)
