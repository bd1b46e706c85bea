"""Figures of this run beside those of the baseline."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from gemma_doctor import baseline as baselines
from gemma_doctor.baseline_file import baseline_of
from gemma_doctor.check import CouldNotLook, NotApplicable
from gemma_doctor.evidence import FIGURES, LOSS, GoodRun, LongText
from gemma_doctor.facts import report_facts

if TYPE_CHECKING:
    from gemma_doctor.capture.collector import Collector
    from gemma_doctor.settings import Settings


def good_run(collector: Collector, settings: Settings) -> GoodRun:
    """What the baseline holds, and the same of this run, which measures now what it did not yet.

    Raises:
        NotApplicable: there is no baseline, or the weights are random.
        CouldNotLook: no pass may be run any more.
    """
    baseline = baseline_of(settings)
    if baseline is None or settings.update_baseline:
        raise NotApplicable("needs --baseline FILE, and not the run that writes it")
    if collector.patient.subject.weights != "real":
        raise NotApplicable("needs trained weights: the losses and the speed of a skeleton say nothing")
    if any(FIGURES[name] is not LOSS for name in baseline.figures):
        _ = collector.trace  # the long generation is in it; first, since the peak of memory is the whole process's
    measured: dict[str, float] = {}
    if any(FIGURES[name] is LOSS for name in baseline.figures):
        with suppress(NotApplicable, CouldNotLook):
            measured |= collector.get(LongText).figures
    measured |= {name: float(value) for name, value in collector.timing().items() if name in FIGURES}
    facts = report_facts(collector.patient.subject, settings, collector)
    used = baselines.conditions(facts["subject"], facts["environment"], facts["passes"])
    apart = {name: baselines.difference(baseline.measured_with, used, name) for name in baseline.figures}
    return GoodRun(
        file=baseline.path,
        recorded=baseline.figures,
        measured=measured,
        differs={name: said for name, said in apart.items() if said},
    )
