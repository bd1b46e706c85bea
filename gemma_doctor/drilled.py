"""What a drill says: each fault that was put in, and whether the right check was the cause."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Verdict(str, enum.Enum):
    """What became of one fault."""

    CAUGHT = "caught"  # the expected check is the only cause; all other failing checks follow from it
    MISSED = "missed"  # nothing was found
    WRONG = "wrong cause"  # another check, or one more, is a cause
    CRASHED = "crashed"  # putting it in raised an exception, or a check did while it was in
    NOT_UNDONE = "not undone"  # taken out again, the subject is not as it was before
    NOT_APPLICABLE = "n/a"  # the subject cannot have it
    NOT_COVERED = "not yet covered"  # its check does not exist yet


APPLICABLE = (Verdict.CAUGHT, Verdict.MISSED, Verdict.WRONG, Verdict.CRASHED, Verdict.NOT_UNDONE)
# Of these nothing is known: the drill itself failed.
BROKEN = (Verdict.CRASHED, Verdict.NOT_UNDONE)


@dataclass(frozen=True, kw_only=True)
class Drilled:
    """One fault.

    Attributes:
        fault: its id.
        title: what was done, one sentence.
        group: of the reading path, where its check stands.
        expected: id of the check that must be the cause.
        verdict: what became of it.
        causes: ids of the checks that are causes and are none on the healthy subject, in reading-path order.
        consequences: ids of the failing checks that follow from them.
        observed: what the expected check saw, one line; empty if it saw nothing.
        reason: of n/a, "crashed" and "not undone".
        seconds: what injecting and examining took; 0 if it was not put in.
    """

    fault: str
    title: str
    group: str
    expected: str
    verdict: Verdict
    causes: tuple[str, ...] = ()
    consequences: tuple[str, ...] = ()
    observed: str = ""
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class DrillReport:
    """Everything that one drill says. Renderers read this and nothing else.

    Attributes:
        version, subject, environment, passes, remarks, timing, interrupted: as in `gemma_doctor.finding.Report`.
        drilled: one per fault that was asked for, in reading-path order; if interrupted, those that were finished.
        left: how many were not drilled any more.
        stopped: why it stopped early, empty if it did not.
        exit_code: as in the command line contract.
    """

    version: str
    subject: Mapping[str, object]
    environment: Mapping[str, object]
    passes: Mapping[str, object]
    remarks: tuple[str, ...]
    drilled: tuple[Drilled, ...]
    left: int = 0
    stopped: str = ""
    exit_code: int = 0
    timing: Mapping[str, Any] = field(default_factory=dict)
    interrupted: bool = False

    def count(self, *verdicts: Verdict) -> int:
        """How many faults ended so."""
        return sum(one.verdict in verdicts for one in self.drilled)

    @property
    def applicable(self) -> int:
        """How many faults were put in."""
        return self.count(*APPLICABLE)
