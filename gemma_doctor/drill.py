"""The drill: put known faults into a healthy subject, one at a time, and see whether the right check is the cause."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from gemma_doctor import __version__, compat
from gemma_doctor.capture.collector import Collector
from gemma_doctor.capture.passes import BRIEF_EDGE
from gemma_doctor.check import GROUPS, Check
from gemma_doctor.diagnosis import chosen_checks, conclude, exit_code
from gemma_doctor.drilled import BROKEN, Drilled, DrillReport, Verdict
from gemma_doctor.errors import DoctorError, TimedOut, in_one_line
from gemma_doctor.examine import examine
from gemma_doctor.facts import report_facts
from gemma_doctor.fault_names import require_known
from gemma_doctor.faults import WAITED_FOR, Fault, all_faults
from gemma_doctor.finding import CheckResult, Finding, Outcome, Report, Severity, counted
from gemma_doctor.loading import Patient, admit
from gemma_doctor.registry import built_in, select
from gemma_doctor.routes import declared, included, looked_at
from gemma_doctor.settings import Progress, Settings
from gemma_doctor.subject import resolve

MARGIN = 4  # tokens past the window's edge: a fault shows at the edge, how long it lasts is the check's own question
LONG = 90  # seconds from which on it is said how much is left
INTERRUPTED = "interrupted"
PROBE = 24  # tokens of the forward that must be bit-identical afterwards


def drill(settings: Settings, names: Sequence[str], progress: Progress) -> DrillReport:
    """Drill one subject.

    Args:
        settings: of the run. Routes and depth say which routes the gate looks at; faults of others are left out.
        names: ids of faults; all if there are none.
        progress: called with one line per fault.

    Raises:
        DoctorError: there is no such fault, the subject cannot be examined, or it is not healthy.
    """
    started = time.perf_counter()
    faults = chosen_faults(names)
    looked_at(settings.routes, settings.depth)  # an unknown route is refused before anything is loaded
    patient = healthy(settings, progress)
    with patient.threads():
        progress(f"the healthy subject, then {counted(len(faults), 'fault')}")
        twin = HealthyTwin(patient, settings, faults)
        drilled, stopped = _one_by_one(twin, faults, progress)
    facts = report_facts(patient.subject, settings, twin.collector)
    report = DrillReport(
        version=__version__,
        remarks=patient.subject.remarks,
        drilled=tuple(drilled),
        left=len(faults) - len(drilled),
        stopped=stopped,
        interrupted=stopped == INTERRUPTED,
        subject=facts["subject"],
        environment=facts["environment"],
        passes={
            **facts["passes"],
            "routes_in_use": sorted(declared(settings.routes, settings.depth)),
            "depth": settings.depth,
        },
        timing={"total": time.perf_counter() - started, "healthy": twin.seconds},
    )
    return replace(report, exit_code=_exit_code(report))


def healthy(settings: Settings, progress: Progress) -> Patient:
    """The subject in memory; a skeleton with a window so small that an examination takes half a second.

    Raises:
        DoctorError: there is no such subject, or it cannot be examined.
    """
    return admit(resolve(settings), settings, progress, reduced_window=BRIEF_EDGE)


def _one_by_one(twin: HealthyTwin, faults: Sequence[Fault], progress: Progress) -> tuple[list[Drilled], str]:
    """Drill them in order. Returns those that were finished, and why it stopped early, "" if it did not."""
    drilled: list[Drilled] = []
    for number, one in enumerate(faults, start=1):
        spent = [one.seconds for one in drilled if one.put_in]
        left = (len(faults) - number + 1) * sum(spent) / max(len(spent), 1)
        about = f", about {left / 60:.0f} minutes left" if left > LONG else ""
        progress(f"fault {number} of {len(faults)}: {one.id}{about}")
        try:
            drilled.append(twin.with_fault(one))
        except KeyboardInterrupt:
            return drilled, INTERRUPTED
        except TimedOut as error:
            return drilled, str(error)
        if drilled[-1].verdict is Verdict.NOT_UNDONE:
            return drilled, f"{one.id} left the subject changed: what is drilled after it would prove nothing"
    return drilled, ""


class HealthyTwin:
    """A healthy patient, and what it says without any fault.

    Args:
        patient: who is drilled. Left as it was.
        settings: of the run.
        faults: that will be put in. What they show on is looked at on the healthy patient as well.

    Attributes:
        patient: as given.
        collector: what the healthy patient was examined with.
        seconds: what that took.
        findings: those above a note that follow from no other.

    Raises:
        DoctorError: the patient is not healthy.
    """

    def __init__(self, patient: Patient, settings: Settings, faults: Sequence[Fault]) -> None:
        self.patient, self._settings = patient, settings
        self._chosen = {one.id for one in select(built_in(), settings.select, settings.ignore)}
        self._looked_at = looked_at(settings.routes, settings.depth)
        self._routes = {route for one in faults for route in one.routes} & self._looked_at
        started = time.perf_counter()
        results, self.collector = _examined(patient, self._with(sorted(self._routes)))
        self.seconds = time.perf_counter() - started
        self.findings = _causes(results)
        not_looked = (Outcome.NOT_APPLICABLE, Outcome.SKIPPED)
        self._not_looked = {one.check: one.reason for one in results if one.outcome in not_looked}
        self._state = self._as_it_is()
        errors = sorted({one.check for one in self.findings if one.severity is Severity.ERROR})
        if errors:
            raise DoctorError(
                f"{patient.subject.name} is sick already ({', '.join(errors)}): what a fault adds would prove nothing",
                "gemma-doctor check it first, or drill a healthy release or subject",
            )

    def with_fault(self, fault: Fault) -> Drilled:
        """Put one fault in, examine, take it out again.

        Raises:
            ValueError: it shows on routes of which nobody knows what the healthy patient does there.
            KeyboardInterrupt, TimedOut: the examination was stopped; the fault is out again.
        """
        if set(fault.routes) & self._looked_at - self._routes:
            raise ValueError(f"{fault.id} is none of the faults that this twin was made for")
        drilled = Drilled(fault=fault.id, title=fault.title, group=fault.group, caught_by=fault.caught_by)
        started = time.perf_counter()
        try:
            reason = self._left_out(fault)
            if reason:
                return replace(drilled, verdict=Verdict.LEFT_OUT, reason=reason)
            reason = self._why_not(fault)
            if reason:
                return replace(drilled, reason=reason)
            if fault.caught_by in WAITED_FOR:
                return replace(drilled, verdict=Verdict.NOT_COVERED)
            with fault.inject(self.patient):
                results, _ = _examined(self.patient, self._with(fault.routes))
            drilled = self._judged(drilled, fault, results)
        except Exception as error:  # whatever it is, the other faults are still to be drilled
            place = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {in_one_line(error)} ({Path(place.filename).name}, line {place.lineno})"
            drilled = replace(drilled, verdict=Verdict.CRASHED, reason=said)
        drilled = replace(drilled, seconds=time.perf_counter() - started)
        if self._as_it_is() != self._state:
            return replace(drilled, verdict=Verdict.NOT_UNDONE, reason="taken out again, the subject is not as before")
        return drilled

    def report(self, routes: Sequence[str] = ()) -> Report:
        """Examine the patient as it is now, with a fault in it, say; the report that `check` would give.

        Args:
            routes: in use, beyond those that everyone takes.
        """
        settings = self._with(routes)
        results, collector = _examined(self.patient, settings)
        facts = report_facts(self.patient.subject, settings, collector)
        report = Report(
            version=__version__,
            subject=facts["subject"],
            environment=facts["environment"],
            passes=facts["passes"],
            remarks=self.patient.subject.remarks,
            results=results,
            fail_on=settings.fail_on,
            exit_code=0,
            timing={**facts["timing"], "total": 0.0},
        )
        return replace(report, exit_code=exit_code(report, settings, chosen_checks(settings), None))

    def _with(self, routes: Sequence[str]) -> Settings:
        in_use = (*self._settings.routes, *included("quick"), *routes)
        return replace(
            self._settings, routes=in_use, depth="quick", margin=MARGIN, baseline=None, update_baseline=False
        )

    def _left_out(self, fault: Fault) -> str:
        """Why the gate would not look where a fault shows; empty if it would."""
        unseen = sorted(set(fault.routes) - self._looked_at)
        if unseen:
            return f"--depth {self._settings.depth} does not look at the route {', '.join(unseen)}"
        if fault.caught_by not in self._chosen | WAITED_FOR.keys():
            return f"{fault.caught_by} is left out by select or ignore"
        return ""

    def _why_not(self, fault: Fault) -> str:
        """Why a fault cannot be put in, or would not be seen; empty if it can and would."""
        if fault.caught_by in self._not_looked:
            return f"{fault.caught_by} does not look at this subject: {self._not_looked[fault.caught_by]}"
        if any(one.check == fault.caught_by and one.severity >= fault.severity for one in self.findings):
            return f"{fault.caught_by} has a finding on the healthy subject"
        return fault.why_not(self.patient)

    def _judged(self, drilled: Drilled, fault: Fault, results: Sequence[CheckResult]) -> Drilled:
        """The cause must be the fault's check, at the fault's severity, and nothing else new."""
        crashed = [f"{one.check}: {one.reason}" for one in results if one.outcome is Outcome.ERROR]
        if crashed:
            return replace(drilled, verdict=Verdict.CRASHED, reason=crashed[0])
        known = {(one.check, one.severity) for one in self.findings}
        new = [one for one in _causes(results) if (one.check, one.severity) not in known]
        # what else the same check says, less severe, is about the same fault (a folder is also held against a preset)
        right = {one.check for one in new} == {fault.caught_by} and max(one.severity for one in new) == fault.severity
        every = [finding for one in results for finding in one.findings]
        return replace(
            drilled,
            verdict=Verdict.CAUGHT if right else Verdict.WRONG if new else Verdict.MISSED,
            causes=tuple(dict.fromkeys(one.check for one in new)),
            consequences=tuple(dict.fromkeys(one.check for one in every if one.follows_from)),
            observed=next(
                (one.observed for one in new if one.check == fault.caught_by),
                next((f"{one.check}: {one.observed}" for one in new), ""),
            ),
        )

    def _as_it_is(self) -> list[object]:
        """What must be the same before and after: logits bit by bit, also of a decode step; settings; hooks."""
        return [*_models(self.patient, self.collector.facts.causal), *_tokenizer(self.patient)]


def chosen_faults(names: Sequence[str]) -> list[Fault]:
    """Faults by id, in reading-path order; all of them if none is named.

    Raises:
        DoctorError: there is no fault of that name.
    """
    known = all_faults()
    require_known(names, known)
    chosen = [known[name] for name in dict.fromkeys(names or known)]
    return sorted(chosen, key=lambda one: (GROUPS.index(one.group), one.caught_by, one.id))


def _examined(patient: Patient, settings: Settings) -> tuple[tuple[CheckResult, ...], Collector]:
    """What the checks say of a patient as it is now.

    Raises:
        KeyboardInterrupt, TimedOut: the examination was stopped.
    """
    checks: tuple[Check, ...] = chosen_checks(settings)
    collector = Collector(patient, settings, lambda line: None, brief=True)
    with compat.quiet():  # what the library warns of is the fault's doing
        results, stopped = examine(checks, collector, settings.thresholds)
        if stopped is not None:
            raise stopped
        return conclude(results, checks, collector), collector


def _causes(results: Sequence[CheckResult]) -> list[Finding]:
    """Findings above a note that follow from no other, in reading-path order."""
    every = (finding for one in results for finding in one.findings)
    return [one for one in every if one.severity > Severity.NOTE and not one.follows_from]


def _models(patient: Patient, generates: bool) -> Iterator[object]:
    for model in patient.models:
        vocabulary = model.get_input_embeddings().num_embeddings
        ids = torch.arange(10, 10 + PROBE, device=model.device)[None] % vocabulary
        with torch.inference_mode():
            yield model(ids).logits.float().cpu().numpy().tobytes()
        yield model.config.to_json_string()
        yield model.generation_config.to_json_string()
        yield sum(
            len(one._forward_hooks) + len(one._forward_pre_hooks) + ("forward" in vars(one)) for one in model.modules()
        )
        yield type(model).generate
    if generates:
        compat.forget_kept_cache(patient.reduced)  # 4.50 to 4.57 keep some, made in inference mode
        output = compat.generate(patient.reduced, ids, torch.ones_like(ids), 2)
        compat.forget_kept_cache(patient.reduced)
        yield torch.stack(output.logits).float().cpu().numpy().tobytes()


def _tokenizer(patient: Patient) -> Iterator[object]:
    yield patient.padding_side
    if patient.tokenizer is not None:
        yield from (getattr(patient.tokenizer, name, None) for name in ("padding_side", "truncation_side"))
        yield patient.tokenizer("a b").input_ids
        yield {**patient.tokenizer.special_tokens_map}


def _exit_code(report: DrillReport) -> int:
    """130 interrupted > 2 stopped early, a drill failed, or nothing was drilled > 1 not all caught > 0."""
    if report.interrupted:
        return 130
    if report.stopped or not report.applicable or report.count(*BROKEN):
        return 2
    return int(report.count(Verdict.CAUGHT) < report.applicable)
