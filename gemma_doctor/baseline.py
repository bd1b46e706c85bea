"""What is known of a good run: findings that do not count any more, and figures that must not get worse.

`check --baseline FILE --update-baseline` writes the file (baseline_file.py), `check --baseline FILE` holds a run
against it. A finding that is in it counts again when it is worse: more severe, in more layers, or in a pass that ran
when the baseline was written and was in order.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import FIGURES, RecordedFigure
from gemma_doctor.finding import CheckResult, Finding, Outcome, Severity, ranges
from gemma_doctor.fingerprint import NUMBER, fingerprints, identity
from gemma_doctor.suppression import Reason

SOURCE = "baseline"
KNOWN = "already found when the baseline was written"
SUBJECT_KEYS = ("name", "family", "weights")


@dataclass(frozen=True)
class KnownFinding:
    """A finding as the baseline holds it.

    Attributes:
        check, title, severity: as of a Finding.
        layers: indices, ascending; empty for the whole model.
        passes: names; empty for every pass.
        route: that was held against the reference route, or empty.
        reason: why it is put up with, if somebody wrote it into the file.
        value: what was observed, of a finding about keys of the configuration: another value is another fault.
    """

    check: str
    title: str
    severity: Severity
    layers: tuple[int, ...] = ()
    passes: tuple[str, ...] = ()
    route: str = ""
    reason: str = ""
    value: str = ""

    @property
    def identity(self) -> tuple[str, str, str]:
        """As `fingerprint.identity` gives it of a Finding."""
        return self.check, NUMBER.sub("#", self.title), self.route


@dataclass(frozen=True)
class Baseline:
    """The file, read.

    Attributes:
        path: as it was named.
        subject: name (the last part of it: folders move), family and weights.
        measured_with: conditions that figures depend on, by name.
        passes: that ran when it was written.
        findings: by fingerprint.
        figures: by name, of FIGURES.
    """

    path: str
    subject: Mapping[str, Any]
    measured_with: Mapping[str, Any] = field(default_factory=dict)
    passes: tuple[str, ...] = ()
    findings: Mapping[str, KnownFinding] = field(default_factory=dict)
    figures: Mapping[str, RecordedFigure] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """Findings of a run beside a baseline.

    Attributes:
        reasons: for each finding, in order: why it does not count; None if it does.
        worse: by place in that order: in what a finding that is in the baseline is worse now.
        gone: what the baseline holds above a note and a check that looked did not find.
    """

    reasons: tuple[Reason | None, ...]
    worse: Mapping[int, str] = field(default_factory=dict)
    gone: tuple[KnownFinding, ...] = ()

    def remarks(self, counting: Iterable[int]) -> tuple[str, ...]:
        """What the headline must say: of the worse ones those that count."""
        said = [self.worse[index] for index in sorted(counting)]
        said += [
            f"gone since the baseline: {one.check}: {one.title}; --update-baseline forgets it" for one in self.gone
        ]
        return tuple(said)


def subject_of(name: str, family: str, weights: str) -> dict[str, str]:
    """What a baseline says of its subject: of its name the last part, since folders move.

    Args:
        weights: "real", "skeleton" or "none" (--static).
    """
    return {"name": PurePath(name).name or name, "family": family, "weights": weights}


def conditions(subject: Mapping[str, Any], environment: Mapping[str, Any], passes: Mapping[str, Any]) -> dict[str, Any]:
    """What figures depend on, from what a Report says of its run; None for what is not known."""
    text = passes.get("long_text") or {}
    return {
        **{name: environment.get(name) for name in ("transformers", "torch")},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        **{name: environment.get(name) for name in ("device", "dtype", "backend")},
        "window": subject.get("window"),
        **{name: passes.get(name) for name in ("prompt_length", "generated")},
        "text": text.get("from"),
        "text_length": text.get("length"),
    }


def difference(one: Mapping[str, Any], other: Mapping[str, Any], figure: str) -> str:
    """The first condition on which two runs' figure depends and in which they differ, in words; "" if there is none.

    Args:
        one: conditions of the baseline.
        other: of this run.
        figure: name.
    """
    for name in FIGURES[figure].depends_on:
        if one.get(name) != other.get(name):
            return f"{name.replace('_', ' ')} {other.get(name)}, in the baseline {one.get(name)}"
    return ""


def require_same_subject(baseline: Baseline, subject: Mapping[str, Any]) -> None:
    """Refuse the baseline of something else.

    Raises:
        DoctorError: in which it differs.
    """
    for key in SUBJECT_KEYS:
        if baseline.subject.get(key) != subject[key]:
            raise DoctorError(
                f"{baseline.path}: is the baseline of another subject ({key} {baseline.subject.get(key)}, "
                f"here {subject[key]})",
                "name this subject's own: --baseline FILE; --update-baseline writes a new one",
            )


def compare(baseline: Baseline, results: Sequence[CheckResult]) -> Comparison:
    """Which findings of a run the baseline knows, which of them are worse, and which are gone."""
    findings = [finding for one in results for finding in one.findings]
    prints = fingerprints(findings)
    reasons: list[Reason | None] = []
    worse = {}
    for index, (finding, mark) in enumerate(zip(findings, prints, strict=True)):
        known = baseline.findings.get(mark)
        reasons.append(None)
        if known is None:
            continue
        alike = [one for one in baseline.findings.values() if one.identity == identity(finding)]
        more = _worse(finding, alike, baseline.passes)
        if more:
            worse[index] = f"worse than in the baseline: {finding.check}: {finding.title}: {more}"
        else:
            reasons[index] = Reason(known.reason or KNOWN, SOURCE)
    looked = {one.check for one in results if one.outcome in (Outcome.PASS, Outcome.FAIL)}
    gone = [one for mark, one in baseline.findings.items() if mark not in prints and one.check in looked]
    return Comparison(tuple(reasons), worse, tuple(one for one in gone if one.severity > Severity.NOTE))


def accepted(old: Baseline | None, results: Sequence[CheckResult]) -> Comparison:
    """The comparison of a run that writes the baseline: all that it finds is known from now on."""
    prints = fingerprints(finding for one in results for finding in one.findings)
    known = old.findings if old is not None else {}
    return Comparison(tuple(Reason(known[one].reason or KNOWN if one in known else KNOWN, SOURCE) for one in prints))


def _worse(finding: Finding, alike: Sequence[KnownFinding], ran: Sequence[str]) -> str:
    """In what a finding is worse than those of the same identity in the baseline, in words; "" if it is not.

    Args:
        ran: passes of the baseline's run; in any other nobody knows how it was.
    """
    said = []
    severest = max(one.severity for one in alike)
    if finding.severity > severest:
        said.append(f"{finding.severity.word}, was {severest.word}")
    if all(one.layers for one in alike):
        layers = sorted(set(finding.where.layers) - {layer for one in alike for layer in one.layers})
        if layers:
            said.append(f"now in layer{'s' if len(layers) > 1 else ''} {', '.join(ranges(layers))} as well")
        elif not finding.where.layers:
            said.append("now in the whole model")
    if all(one.passes for one in alike):
        before = {name for one in alike for name in one.passes}
        passes = [name for name in finding.where.passes if name in ran and name not in before]
        if passes:
            said.append(f"now in the pass{'es' if len(passes) > 1 else ''} {', '.join(passes)} as well")
    values = [one.value for one in alike]
    if finding.keys and all(values) and finding.observed not in values:
        said.append(f"now {finding.observed}, was {', '.join(values)}")
    return "; ".join(said)
