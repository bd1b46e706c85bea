"""What stays of a finding from run to run, so that two reports can be held against each other.

Figures jitter (another machine, another release), layers come and go as a fault spreads: neither belongs to it.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable

from gemma_doctor.finding import Finding

NUMBER = re.compile(r"[+-]?\d[\d,]*(\.\d+)?(e[+-]?\d+)?")
LENGTH = 16  # hexadecimal digits


def identity(finding: Finding) -> tuple[str, str, str]:
    """(check, title without its numbers, route): two findings of the same identity are the same fault."""
    return finding.check, NUMBER.sub("#", finding.title), finding.where.route


def fingerprints(findings: Iterable[Finding]) -> tuple[str, ...]:
    """One per finding of a report, in its order, no two alike: a second one of the same identity counts on."""
    seen: Counter[tuple[str, str, str]] = Counter()
    made = []
    for finding in findings:
        one = identity(finding)
        seen[one] += 1
        number = (str(seen[one]),) if seen[one] > 1 else ()
        made.append(hashlib.sha256("\n".join((*one, *number)).encode(errors="backslashreplace")).hexdigest()[:LENGTH])
    return tuple(made)
