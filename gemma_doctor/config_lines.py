"""Where in the subject's configuration file the keys stand that findings are about."""

from __future__ import annotations

from collections.abc import Sequence

from gemma_doctor.finding import CheckResult
from gemma_doctor.subject import Subject


def located(results: Sequence[CheckResult], subject: Subject) -> tuple[CheckResult, ...]:
    """Findings with the line of the first of their keys."""
    return tuple(results)
