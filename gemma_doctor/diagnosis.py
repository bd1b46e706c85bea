"""The whole run: resolve the subject, select checks, collect evidence once, examine, order causes, report."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gemma_doctor import __version__, registry, routes
from gemma_doctor import baseline as baselines
from gemma_doctor.advisories import concerning
from gemma_doctor.baseline import Baseline
from gemma_doctor.baseline_file import baseline_of
from gemma_doctor.check import Check
from gemma_doctor.config_lines import located
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import Advisories, GoodRun
from gemma_doctor.examine import PublishedOnly, Source, examine
from gemma_doctor.facts import report_facts, version_of
from gemma_doctor.finding import CheckResult, Outcome, Report
from gemma_doctor.known import set_aside
from gemma_doctor.overruling import overruled, require_known, with_severities
from gemma_doctor.recognition import recognised
from gemma_doctor.settings import Progress, Settings
from gemma_doctor.subject import Subject, resolve
from gemma_doctor.triage import triage
from gemma_doctor.vote import with_effects, with_sides

if TYPE_CHECKING:  # they import torch
    from gemma_doctor.capture.collector import Collector
    from gemma_doctor.loading import Patient


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
    baseline_of(settings)  # one that cannot be read is refused before anything is loaded
    subject = resolve(settings)
    if settings.static:
        in_use = routes.declared(settings.routes, settings.depth)
        known = concerning(version_of("transformers"), subject.config, in_use=in_use)
        return _report(subject, settings, checks, PublishedOnly(subject.config, known), {}, started)
    import gemma_doctor.capture.collector  # noqa: F401 (imports torch, which takes its time)
    from gemma_doctor.loading import admit

    loading = time.perf_counter()
    patient = admit(subject, settings, progress)
    phases = {"import": loading - started, "load": time.perf_counter() - loading}
    return diagnose_patient(patient, settings, progress, checks, phases, started)


def diagnose_patient(
    patient: Patient,
    settings: Settings,
    progress: Progress,
    checks: Sequence[Check],
    phases: Mapping[str, float],
    started: float,
) -> Report:
    """Examine a subject whose models are in memory.

    Args:
        phases: seconds that were spent before, by what on.
        started: when, as `time.perf_counter` has it.
    """
    from gemma_doctor.capture.collector import Collector

    collector = Collector(patient, settings, progress)
    with patient.threads():
        return _report(patient.subject, settings, checks, collector, phases, started)


def _report(
    subject: Subject,
    settings: Settings,
    checks: Sequence[Check],
    source: Collector | PublishedOnly,
    phases: Mapping[str, float],
    started: float,
) -> Report:
    """Run the checks on what the source gives, and say what came of it."""
    known = _known(subject, settings, is_static=isinstance(source, PublishedOnly))
    results, stopped = examine(checks, source, settings.thresholds)
    results = conclude(with_severities(results, settings.severity), checks, source)
    results = located(results, subject, settings)
    compared = _compared(known, results, settings)
    results, suppressed, said = set_aside(results, settings.suppress, compared, datetime.date.today())
    facts = report_facts(subject, settings, None if isinstance(source, PublishedOnly) else source)
    report = Report(
        version=__version__,
        remarks=(*subject.remarks, *overruled(settings), *said),
        results=results,
        fail_on=settings.fail_on,
        exit_code=0,
        interrupted=isinstance(stopped, KeyboardInterrupt),
        suppressed=suppressed,
        documentation={one.id: one.documentation for one in checks},
        **facts,
    )
    timing = {
        **report.timing,
        "total": time.perf_counter() - started,
        "phases": {**phases, **report.timing.get("phases", {})},
    }
    return replace(report, exit_code=exit_code(report, settings, checks, stopped), timing=timing)


def _known(subject: Subject, settings: Settings, is_static: bool) -> Baseline | None:
    """The baseline of this run, if it has one.

    Raises:
        DoctorError: it cannot be read, or is another subject's.
    """
    known = baseline_of(settings)
    if known is not None:
        weights = "none" if is_static else subject.weights
        here = baselines.subject_of(subject.name, subject.config.published.family, weights)
        baselines.require_same_subject(known, here)
    return known


def _compared(
    known: Baseline | None, results: Sequence[CheckResult], settings: Settings
) -> baselines.Comparison | None:
    """The findings beside the baseline; None without one."""
    if settings.update_baseline:
        return baselines.accepted(known, results)
    return baselines.compare(known, results) if known is not None else None


def conclude(results: Sequence[CheckResult], checks: Sequence[Check], source: Source) -> tuple[CheckResult, ...]:
    """Say what follows from what, which side is wrong where two differ, and which public fault it is."""
    results = with_effects(with_sides(triage(results, checks), source))
    return recognised(results, checks, source.get(Advisories))


def chosen_checks(settings: Settings) -> tuple[Check, ...]:
    """The selected checks; with --static those that the published file is enough for."""
    known = registry.available(settings.checks_dir, plugins=not settings.no_plugins)
    require_known(settings, known)
    required = registry.expand(settings.require, known, "--require")
    chosen = registry.select(known, settings.select, settings.ignore)
    run = routes.looked_at(settings.routes, settings.depth)
    named = {*settings.select, *required}
    chosen = tuple(
        one for one in chosen if one.id in named or (run.issuperset(one.routes) and _has_baseline(one, settings))
    )
    missing = required - {one.id for one in chosen}
    if missing:
        raise DoctorError(f"--require: {', '.join(sorted(missing))} is not selected", "loosen --select or --ignore")
    if settings.static:
        chosen = tuple(one for one in chosen if one.is_static or one.id in named)
    if not chosen:
        raise DoctorError("no selected check can run with --static", "leave --static out")
    return chosen


def _has_baseline(one: Check, settings: Settings) -> bool:
    """A check that looks at the figures of a baseline has one that it can look at; true of any other."""
    return (settings.baseline is not None and not settings.update_baseline) or all(
        need.type is not GoodRun for need in one.needs
    )


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
