"""What `gemma-doctor new-check` writes: a check that works, and a test of it that passes. Both are there to be changed.

Written with `string.Template`: $name, $id and $folder are put in.
"""

from __future__ import annotations

import builtins
from string import Template

# Names that the written file uses, or may want to: a function that is named so would hide them.
USED = frozenset(dir(builtins)) | {"annotations", "check", "nothing_there"}

CHECK = Template('''\
"""The first real token of every row stands at position 0.

What it proves
    Say what is compared with what, and where: in which passes, layers and steps.
    Here: in every pass, the position id of the first real token of each row is 0.

Why it matters
    Say what goes wrong for people who have this fault, and how they would notice.

How to fix
    Say what to change, best as a line that can be copied. Here: pass position_ids that
    count real tokens only.

Known limits
    Say what it does not look at, and when it could be wrong.

References
    Papers, issues, the library's own documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.check import check, nothing_there
from gemma_doctor.evidence import Trace
from gemma_doctor.finding import Examined, Finding, Location, Severity


@check()
def $name(trace: Trace) -> Iterator[Finding | Examined]:
    """The first real token of every row stands at position 0."""
    looked = 0
    for one in trace.passes:
        if not one.forwards or one.forwards[0].positions is None:
            continue
        first = one.forwards[0]
        looked += 1
        rows = zip(first.positions, first.real, strict=True)
        starts = [int(positions[real][0]) for positions, real in rows if real.any()]
        if any(starts):
            yield Finding(
                title="a row does not start at position 0",
                severity=Severity.WARNING,
                where=Location(passes=(one.name,)),
                observed=f"rows start at {starts}",
                expected="0",
                do="pass position_ids that count real tokens only",
            )
    if not looked:
        raise nothing_there(trace, "no pass has position ids")
    yield Examined(looked, f"{looked} passes start at 0")
''')

TEST = Template('''\
"""$id passes what is healthy and sees what is not.

The evidence is made by hand: no model, no torch.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gemma_doctor.finding import Outcome
from gemma_doctor.testing import load_check, one_pass, run_check, trace, with_forward

CHECK = load_check($folder, "$id")


def test_a_healthy_trace_passes() -> None:
    result = run_check(CHECK, trace=trace())
    assert (result.outcome, result.findings) == (Outcome.PASS, ())


def test_a_row_that_starts_elsewhere_is_found() -> None:
    healthy = one_pass()
    shifted = with_forward(healthy, 0, positions=healthy.forwards[0].positions + 3)
    (finding,) = run_check(CHECK, trace=trace(shifted)).findings
    assert finding.observed == "rows start at [3]"


def test_without_positions_there_is_nothing_to_look_at() -> None:
    empty = replace(one_pass(), forwards=())
    assert run_check(CHECK, trace=trace(empty)).outcome is Outcome.NOT_APPLICABLE
''')
