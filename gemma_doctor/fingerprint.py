"""What stays of a finding from run to run, so that two reports can be held against each other.

Figures jitter (another machine, another release), layers come and go as a fault spreads: neither belongs to it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

from gemma_doctor.finding import Finding

NUMBER = re.compile(r"(?<![A-Za-z0-9_])[+-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?")  # standing free: float16 is a name
LENGTH = 16  # hexadecimal digits


def identity(finding: Finding) -> tuple[str, str, str]:
    """(check, title without its numbers, route): two findings of the same identity are the same fault."""
    return finding.check, NUMBER.sub("#", finding.title), finding.where.route


def fingerprints(findings: Iterable[Finding]) -> tuple[str, ...]:
    """One per finding, in their order, no two alike: a second one of the same identity counts on.

    Args:
        findings: all of a report, the suppressed ones too. Those of one identity are numbered by where they stand, so
            that suppressing one hands its fingerprint to no other.
    """
    every = tuple(findings)
    seen: Counter[tuple[str, str, str]] = Counter()
    made: dict[int, str] = {}
    for index in sorted(range(len(every)), key=lambda index: _place(every[index])):
        one = identity(every[index])
        seen[one] += 1
        number = (str(seen[one]),) if seen[one] > 1 else ()
        text = "\n".join((*one, *number)).encode(errors="backslashreplace")
        made[index] = hashlib.sha256(text).hexdigest()[:LENGTH]
    return tuple(made[index] for index in range(len(every)))


def _place(finding: Finding) -> tuple[object, ...]:
    return finding.where.layers, finding.where.passes, finding.keys, finding.title, finding.observed
