"""The whole run: resolve the subject, select checks, collect evidence once, examine, order causes, report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gemma_doctor import __version__, registry
from gemma_doctor.check import GROUPS, Check, CouldNotLook, NotApplicable, judge
from gemma_doctor.errors import DoctorError, TimedOut, in_one_line
from gemma_doctor.evidence import Config
from gemma_doctor.facts import report_facts
from gemma_doctor.finding import CheckResult, Finding, Outcome, Report, Severity
from gemma_doctor.settings import Progress, Settings
from gemma_doctor.subject import resolve


class Source(Protocol):
    """Where evidence comes from."""

    def get(self, kind: type) -> Any:
        """One piece of evidence; raises NotApplicable or CouldNotLook."""

    def close(self, reason: str) -> None:
        """Collect nothing any more."""


@dataclass(frozen=True)
class PublishedOnly:
    """The source of `check --static`: nothing is loaded."""

    config: Config

    def get(self, kind: type) -> Any:
        if kind is Config:
            return self.config
        raise CouldNotLook("--static looks at the published file only")

    def close(self, reason: str) -> None:
        return


def diagnose(settings: Settings, progress: Progress) -> Report:
    """Examine one subject.

    Args:
        settings: what to do.
        progress: called with one line of text now and then.

    Raises:
        DoctorError: the examination cannot be made.
    """
    started = time.perf_counter()
    checks = chosen_checks(settings)
    subject = resolve(settings)
    collector, phases = None, {}
    if settings.static:
        results, stopped = examine(checks, PublishedOnly(subject.config))
    else:
        from gemma_doctor.capture.collector import Collector  # imports torch
        from gemma_doctor.loading import admit

        loading = time.perf_counter()
        patient = admit(subject, settings, progress)
        subject = patient.subject
        collector = Collector(patient, settings, progress)
        phases = {"import": loading - started, "load": time.perf_counter() - loading}
        with patient.threads():
            results, stopped = examine(checks, collector)
    report = Report(
        version=__version__,
        remarks=subject.remarks,
        results=triage(results, checks),
        fail_on=settings.fail_on,
        exit_code=0,
        interrupted=isinstance(stopped, KeyboardInterrupt),
        **report_facts(subject, settings, collector),
    )
    phases |= report.timing.get("phases", {})
    timing = {**report.timing, "total": time.perf_counter() - started, "phases": phases}
    return replace(report, exit_code=exit_code(report, settings, checks, stopped), timing=timing)


def chosen_checks(settings: Settings) -> tuple[Check, ...]:
    """The selected checks; with --static those that the published file is enough for."""
    known = registry.built_in()
    required = registry.expand(settings.require, known, "--require")
    chosen = registry.select(known, settings.select, settings.ignore)
    missing = required - {one.id for one in chosen}
    if missing:
        raise DoctorError(f"--require: {', '.join(sorted(missing))} is not selected", "loosen --select or --ignore")
    if settings.static:
        chosen = tuple(one for one in chosen if one.is_static or one.id in {*settings.select, *required})
    if not chosen:
        raise DoctorError("no selected check can run with --static", "leave --static out")
    return chosen


def examine(checks: Sequence[Check], source: Source) -> tuple[tuple[CheckResult, ...], BaseException | None]:
    """Run the checks, in order.

    Returns:
        One result per check, and what stopped the run, if anything did: KeyboardInterrupt or TimedOut. From then on
        nothing more is run: checks get what is known by then, and those that it is not enough for are `skipped`.
    """
    results: list[CheckResult] = []
    stopped: BaseException | None = None
    for one in checks:
        try:
            results.append(run_check(one, source))
        except (KeyboardInterrupt, TimedOut) as error:
            stopped = error
            source.close(_reason(error))
            results.append(run_check(one, source))
    return tuple(results), stopped


def _reason(stop: BaseException) -> str:
    return "interrupted" if isinstance(stop, KeyboardInterrupt) else str(stop)


def run_check(one: Check, source: Source) -> CheckResult:
    """One check, from evidence to outcome."""
    try:
        return judge(one.id, one.group, lambda: one.function(**_evidence_for(one, source)))
    except DoctorError:
        raise
    except Exception as error:
        reason = f"the check crashed: {type(error).__name__}: {in_one_line(error)}"
        return CheckResult(check=one.id, group=one.group, outcome=Outcome.ERROR, reason=reason)


def _evidence_for(one: Check, source: Source) -> dict[str, Any]:
    """Arguments of a check. Optional evidence that is not to be had is None."""
    arguments: dict[str, Any] = {}
    for need in one.needs:
        try:
            arguments[need.parameter] = source.get(need.type)
        except (NotApplicable, CouldNotLook):
            if not need.optional:
                raise
            arguments[need.parameter] = None
    return arguments


def triage(results: Sequence[CheckResult], checks: Sequence[Check]) -> tuple[CheckResult, ...]:
    """Say of each finding which other it follows from.

    The reading path is a chain. An error explains another one when its gate stands earlier and its place covers the
    other's (see `Location.can_explain`); the earliest such error is the cause.
    """
    gates = {one.id: one.gate for one in checks}

    def gate(finding: Finding) -> tuple[int, int]:
        # what another group's check only saw there stands after that group's own checks
        return (GROUPS.index(finding.gate), 2) if finding.gate else gates[finding.check]

    errors = [item for one in results for item in one.findings if item.severity is Severity.ERROR]
    errors.sort(key=gate)

    def explained(finding: Finding) -> Finding:
        if finding.severity is not Severity.ERROR or finding.standing or not finding.where.passes:
            return finding
        for cause in errors:
            earlier = gate(cause) < gate(finding) and cause.check != finding.check
            if earlier and cause.where.can_explain(finding.where):
                return replace(finding, follows_from=cause.check)
        return finding

    return tuple(replace(one, findings=tuple(explained(item) for item in one.findings)) for one in results)


def exit_code(report: Report, settings: Settings, checks: Sequence[Check], stopped: BaseException | None) -> int:
    """130 interrupted > 2 could not examine > 1 findings at or above --fail-on > 0."""
    if isinstance(stopped, KeyboardInterrupt):
        return 130
    skipped = {one.check for one in report.results if one.outcome is Outcome.SKIPPED}
    required = {one.id for one in checks if {one.id, one.group} & set(settings.require)}
    if (
        stopped
        or report.count(Outcome.ERROR)
        or not report.looked
        or (skipped and settings.strict_skips)
        or skipped & required
    ):
        return 2
    if settings.fail_on is not None and any(item.severity >= settings.fail_on for item in report.findings):
        return 1
    return 0
