"""Checks meet evidence: each selected check is run once, on what a source gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gemma_doctor.check import BUILT_IN, Check, CouldNotLook, NotApplicable, judge
from gemma_doctor.errors import DoctorError, TimedOut, in_one_line
from gemma_doctor.evidence import Advisories, Config, ModelFacts, Trace
from gemma_doctor.finding import CheckResult, Outcome

# By check and name.
Thresholds = Mapping[str, Mapping[str, float]]


class Source(Protocol):
    """Where evidence comes from."""

    def get(self, kind: type, of: str = "") -> Any:
        """One piece of evidence, that of one route where there are several; raises NotApplicable or CouldNotLook."""

    def close(self, reason: str) -> None:
        """Collect nothing any more."""

    def reference_of(self, route: str) -> tuple[ModelFacts, Trace] | None:
        """The model whose reference route a route was held against, and what that did; None if it was not run."""


@dataclass(frozen=True)
class PublishedOnly:
    """The source of `check --static`: nothing is loaded."""

    config: Config
    advisories: Advisories

    def get(self, kind: type, of: str = "") -> Any:
        if kind is Config:
            return self.config
        if kind is Advisories:
            return self.advisories
        raise CouldNotLook("--static looks at the published file only")

    def close(self, reason: str) -> None:
        return

    def reference_of(self, route: str) -> tuple[ModelFacts, Trace] | None:
        return None


def examine(
    checks: Sequence[Check], source: Source, thresholds: Thresholds | None = None
) -> tuple[tuple[CheckResult, ...], BaseException | None]:
    """Run the checks, in order.

    Args:
        thresholds: other ones than the checks' own, by check and name.

    Returns:
        One result per check, and what stopped the run, if anything did: KeyboardInterrupt or TimedOut. From then on
        nothing more is run: checks get what is known by then, and those that it is not enough for are `skipped`.
    """
    results: list[CheckResult] = []
    stopped: BaseException | None = None
    for one in checks:
        try:
            results.append(run_check(one, source, (thresholds or {}).get(one.id)))
        except (KeyboardInterrupt, TimedOut) as error:
            stopped = error
            source.close(_reason(error))
            results.append(run_check(one, source, (thresholds or {}).get(one.id)))
    return tuple(results), stopped


def _reason(stop: BaseException) -> str:
    return "interrupted" if isinstance(stop, KeyboardInterrupt) else str(stop)


def run_check(one: Check, source: Source, thresholds: Mapping[str, float] | None = None) -> CheckResult:
    """One check, from evidence to outcome."""
    try:
        return judge(one.id, one.group, lambda: one.function(**_evidence_for(one, source), **(thresholds or {})))
    except DoctorError:
        raise
    except (Exception, SystemExit) as error:  # a check must not end the run, least of all with exit code 0
        whose = "" if one.source == BUILT_IN else f" ({one.source})"
        reason = f"the check{whose} crashed: {type(error).__name__}: {in_one_line(error)}"
        return CheckResult(check=one.id, group=one.group, outcome=Outcome.ERROR, reason=reason)


def _evidence_for(one: Check, source: Source) -> dict[str, Any]:
    """Arguments of a check. Optional evidence that is not to be had is None."""
    arguments: dict[str, Any] = {}
    for need in one.needs:
        try:
            arguments[need.parameter] = source.get(need.type, need.of)
        except (NotApplicable, CouldNotLook):
            if not need.optional:
                raise
            arguments[need.parameter] = None
    return arguments
