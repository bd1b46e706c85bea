"""Which side is wrong where a route leaves the reference route: that is under test too, and may not always vote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gemma_doctor import registry
from gemma_doctor.evidence import Trace
from gemma_doctor.examine import Source, run_check
from gemma_doctor.finding import CheckResult, Finding, Outcome, Severity
from gemma_doctor.routes import PLAIN

if TYPE_CHECKING:
    from gemma_doctor.capture.collector import Collector

# What the reference route must pass before it may say which side is wrong.
VOTERS = ("sliding-window", "position-ids", "rope-theta", "mask-pattern")


@dataclass(frozen=True)
class OnReference:
    """The source of evidence for a look at the reference route itself."""

    source: Source
    trace: Trace

    def get(self, kind: type, of: str = "") -> Any:
        return self.trace if kind is Trace else self.source.get(kind, of)

    def close(self, reason: str) -> None:
        self.source.close(reason)


def with_evidence_of_routes(results: Sequence[CheckResult], collector: Collector | None) -> tuple[CheckResult, ...]:
    """Say which side is wrong where a route differs from the reference, and how far a cause reaches the logits.

    Args:
        results: after triage.
        collector: that the evidence came from, None with --static.
    """
    compared = [item for one in results for item in one.findings if item.against]
    compared.sort(key=lambda item: item.where.route not in PLAIN)  # what everyone runs says how far a cause reaches
    if not compared or collector is None:
        return tuple(results)
    side = _wrong_side(collector)
    measured: dict[str, Finding] = {}
    for item in compared:
        measured.setdefault(item.follows_from, item)

    def completed(finding: Finding) -> Finding:
        if finding.against:
            return replace(finding, wrong_side=side)
        shown = measured.get(finding.check)
        if shown is None or finding.follows_from or finding.severity is not Severity.ERROR:
            return finding
        return replace(finding, effect=finding.effect or shown.effect, meanwhile=finding.meanwhile or shown.meanwhile)

    return tuple(replace(one, findings=tuple(map(completed, one.findings))) for one in results)


def _wrong_side(collector: Collector) -> str:
    """Whether the reference route may vote, in words."""
    trace = collector.reference_trace
    if trace is None:
        return "undecided: nothing is known of the reference"
    voters = [one for one in registry.built_in() if one.id in VOTERS]
    looked = [run_check(one, OnReference(collector, trace)) for one in voters]
    sick = [one.check for one in looked if one.worst is Severity.ERROR]
    if sick:
        return f"undecided: the reference is sick as well ({', '.join(sick)})"
    passed = ", ".join(one.check for one in looked if one.outcome is Outcome.PASS)
    return f"this route: the reference passes {passed}"
