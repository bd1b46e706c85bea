"""What a drill says: each fault that was put in, and whether the right check was the cause."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Verdict(str, enum.Enum):
    """What became of one fault."""

    CAUGHT = "caught"  # its check is the only cause; all other failing checks follow from it
    MISSED = "missed"  # nothing was found
    WRONG = "wrong cause"  # another check, or one more, is a cause
    CRASHED = "crashed"  # putting it in raised an exception, or a check did while it was in
    NOT_UNDONE = "not undone"  # taken out again, the subject is not as it was before
    NOT_APPLICABLE = "n/a"  # the subject cannot have it
    LEFT_OUT = "left out"  # the gate does not look there: its check is not selected, or its route is beyond --depth
    NOT_COVERED = "not yet covered"  # its check does not exist yet


# Of these nothing is known: the drill itself failed.
BROKEN = (Verdict.CRASHED, Verdict.NOT_UNDONE)


@dataclass(frozen=True, kw_only=True)
class Drilled:
    """One fault.

    Attributes:
        fault: its id.
        title: what was done, one sentence.
        group: of the reading path, where its check stands.
        caught_by: id of the check that must be the cause.
        verdict: what became of it.
        causes: ids of the checks that are causes and are none on the healthy subject, in reading-path order.
        consequences: ids of the failing checks that follow from them.
        observed: what that check saw, or if it saw nothing the first of the causes, which is then named; one line.
        reason: of n/a, "left out", "crashed" and "not undone".
        seconds: what injecting and examining took; 0 if it was not put in.
    """

    fault: str
    title: str
    group: str
    caught_by: str
    verdict: Verdict = Verdict.NOT_APPLICABLE
    causes: tuple[str, ...] = ()
    consequences: tuple[str, ...] = ()
    observed: str = ""
    reason: str = ""
    seconds: float = 0.0

    @property
    def put_in(self) -> bool:
        """The subject can have it, and it was put in."""
        return self.verdict not in (Verdict.NOT_APPLICABLE, Verdict.LEFT_OUT, Verdict.NOT_COVERED)

    @property
    def not_caught(self) -> bool:
        """It was put in, and its check was not the only cause."""
        return self.put_in and self.verdict is not Verdict.CAUGHT


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
        return sum(one.put_in for one in self.drilled)

    @property
    def not_caught(self) -> list[Drilled]:
        """Faults that were put in, and whose check was not the only cause."""
        return [one for one in self.drilled if one.not_caught]
