"""Reads a report of `check` back from its JSON document, as far as two of them are compared.

Whoever wrote the file may have changed it: everything that is read is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gemma_doctor.errors import DoctorError
from gemma_doctor.finding import Outcome, Severity

# n/a says that there is nothing to look at, which is no loss.
RANKS = {Outcome.PASS: 0, Outcome.FAIL: 0, Outcome.NOT_APPLICABLE: 0, Outcome.SKIPPED: 1, Outcome.ERROR: 2}


@dataclass(frozen=True)
class KnownFinding:
    """A finding of a report.

    Attributes:
        fingerprint: the same for the same fault in every run.
        layers: ascending; empty if it is bound to none.
        suppressed: why it does not count; "" if it does.
    """

    fingerprint: str
    check: str
    title: str
    severity: Severity
    observed: str
    layers: tuple[int, ...]
    follows_from: str
    suppressed: str = ""


@dataclass(frozen=True)
class Looked:
    """What became of one check."""

    outcome: Outcome
    reason: str
    figures: Mapping[str, float]

    @property
    def examined(self) -> bool:
        """It looked at something."""
        return self.outcome in (Outcome.PASS, Outcome.FAIL)

    @property
    def rank(self) -> int:
        """0 it did what there was to do, 1 it could not, 2 it crashed."""
        return RANKS[self.outcome]

    @property
    def in_words(self) -> str:
        return f"{self.outcome.value}: {self.reason}" if self.reason else self.outcome.value


@dataclass(frozen=True)
class ReportDocument:
    """A report.

    Attributes:
        examined: name and weights of the subject: two reports with the same are about the same one.
        in_short: that, and what came out.
        layer_kinds: of the layers that were examined.
        settings: what else was said of subject, environment and passes, as in the document.
        checks: by id, in the order of the reading path.
        findings: by fingerprint, the suppressed ones too.
    """

    examined: str
    in_short: str
    layer_kinds: Any
    settings: Mapping[str, Any]
    remarks: tuple[str, ...]
    interrupted: bool
    checks: Mapping[str, Looked]
    findings: Mapping[str, KnownFinding]


def read(document: Mapping[str, Any], name: str) -> ReportDocument:
    """Read one.

    Args:
        name: of the file, for the error.

    Raises:
        DoctorError: it lacks something that every report has, or that is something else.
    """
    try:
        return _read(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else f"holds something else: {error}"
        raise DoctorError(
            f"{name}: no whole report of check: it {what}"[:300], "write it again: gemma-doctor check --format json"
        ) from None


def _read(document: Mapping[str, Any]) -> ReportDocument:
    subject = dict(document["subject"])
    weights = "published file" if subject["weights"] == "none" else f"{subject['weights']} weights"
    examined = f"{subject.pop('name')} ({weights})"
    return ReportDocument(
        examined=examined,
        in_short=f"{examined}: {document['verdict']}, exit {document['exit_code']}",
        layer_kinds=subject.get("layer_kinds"),
        settings={
            "gemma_doctor": document["gemma_doctor"],
            "fail_on": document["fail_on"],
            "subject": subject,
            "environment": dict(document["environment"]),
            "passes": dict(document["passes"]),
        },
        remarks=tuple(map(str, document["remarks"])),
        interrupted=document["interrupted"] is True,
        checks={str(one["check"]): _looked(one) for one in document["results"]},
        findings={one.fingerprint: one for one in _findings(document)},
    )


def _looked(result: Mapping[str, Any]) -> Looked:
    examined = result["examined"] or {}
    figures = {
        str(name): float(value) for name, value in dict(examined.get("figures", {})).items() if value is not None
    }
    return Looked(Outcome(result["outcome"]), str(result["reason"]), figures)


def _findings(document: Mapping[str, Any]) -> Iterator[KnownFinding]:
    for result in document["results"]:
        yield from (_finding(one) for one in result["findings"])
    for one in document["suppressed"]:
        yield _finding(one["finding"], f"{one['source']}: {one['reason']}")


def _finding(finding: Mapping[str, Any], suppressed: str = "") -> KnownFinding:
    return KnownFinding(
        fingerprint=str(finding["fingerprint"]),
        check=str(finding["check"]),
        title=str(finding["title"]),
        severity=Severity[finding["severity"].upper()],
        observed=str(finding["observed"]),
        layers=tuple(sorted(map(int, finding["where"]["layers"]))),
        follows_from=str(finding["follows_from"]),
        suppressed=suppressed,
    )
