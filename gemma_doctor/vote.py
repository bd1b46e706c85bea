"""What routes say of other findings: which side is wrong, how far a cause reaches the logits, and what follows from a
reference that is sick itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gemma_doctor import registry
from gemma_doctor.evidence import ModelFacts, Trace
from gemma_doctor.examine import Source, run_check
from gemma_doctor.finding import CheckResult, Finding, Outcome, Severity
from gemma_doctor.routes import PLAIN

# What the reference route must pass before it may say which side is wrong.
VOTERS = ("sliding-window", "position-ids", "rope-theta", "rope-positions", "all-masked-rows", "mask-pattern")


@dataclass(frozen=True)
class _OnReference:
    """The source of evidence for a look at the reference route itself: it is under test too."""

    source: Source
    facts: ModelFacts
    trace: Trace

    def get(self, kind: type, of: str = "") -> Any:
        own: dict[type, Any] = {ModelFacts: self.facts, Trace: self.trace}
        return own[kind] if kind in own else self.source.get(kind, of)

    def close(self, reason: str) -> None:
        self.source.close(reason)

    def reference_of(self, route: str) -> tuple[ModelFacts, Trace] | None:
        return self.facts, self.trace


def with_sides(results: Sequence[CheckResult], source: Source) -> tuple[CheckResult, ...]:
    """Say which side is wrong where a route differs from the reference.

    A difference that nothing explains yet follows from what the reference is sick with, if the run is sick with it too.
    """
    sides: dict[int, _Side] = {}  # by the facts of the model that was the reference: often one for all routes
    erring = {item.check for one in results for item in one.findings if item.severity is Severity.ERROR}

    def completed(finding: Finding) -> Finding:
        if not finding.against_reference:
            return finding
        reference = source.reference_of(finding.where.route)
        if reference is None:
            return replace(finding, wrong_side="undecided: nothing is known of the reference")
        model = id(reference[0])
        side = sides[model] = sides.get(model) or _wrong_side(_OnReference(source, *reference))
        shared = next((one for one in side.sick if one in erring), "")
        return replace(finding, wrong_side=side.said, follows_from=finding.follows_from or shared)

    return tuple(replace(one, findings=tuple(map(completed, one.findings))) for one in results)


@dataclass(frozen=True)
class _Side:
    """Which side is wrong, in words, and which voters have an error on the reference."""

    said: str
    sick: tuple[str, ...] = ()


def _wrong_side(reference: _OnReference) -> _Side:
    """Whether the reference route may vote."""
    voters = [one for one in registry.built_in() if one.id in VOTERS]
    looked = [run_check(one, reference) for one in voters]
    sick = tuple(one.check for one in looked if one.worst is Severity.ERROR)
    if sick:
        return _Side(f"undecided: the reference is sick as well ({', '.join(sick)})", sick)
    unproven = [one.check for one in looked if one.outcome not in (Outcome.PASS, Outcome.NOT_APPLICABLE)]
    if unproven:
        return _Side(f"undecided: the reference was not seen to pass {', '.join(unproven)}")
    passed = ", ".join(one.check for one in looked if one.outcome is Outcome.PASS)
    return _Side(f"this route: the reference passes {passed}")


def with_effects(results: Sequence[CheckResult]) -> tuple[CheckResult, ...]:
    """Give causes the effect on the logits, and what is right meanwhile, from the routes that follow from them."""
    compared = [item for one in results for item in one.findings if item.against_reference]
    compared.sort(key=lambda item: item.where.route not in PLAIN)  # what everyone runs says how far a cause reaches
    measured: dict[str, Finding] = {}
    for item in compared:
        measured.setdefault(item.follows_from, item)

    def completed(finding: Finding) -> Finding:
        shown = measured.get(finding.check)
        if shown is None or finding.follows_from or finding.severity is not Severity.ERROR:
            return finding
        return replace(finding, effect=finding.effect or shown.effect, meanwhile=finding.meanwhile or shown.meanwhile)

    return tuple(replace(one, findings=tuple(map(completed, one.findings))) for one in results)
