"""What ran: every pass, with what was fed and how long it took. For those who ask (-v)."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.finding import Report
from gemma_doctor.report.escape import escape
from gemma_doctor.report.lines import Line


def ran(report: Report) -> Iterator[Line]:
    """A heading and one line per pass."""
    passes = report.passes.get("ran")
    if not isinstance(passes, list) or not passes:
        return
    seconds = report.timing.get("passes", {})
    title = "passes that ran"
    wide = max(len(title) - 2, *(len(escape(str(one["name"]))) for one in passes))
    yield Line(title, f"{'':<{wide + 4 - len(title)}}{'forwards':>8}  {'tokens':>9}  {'seconds':>7}")
    for one in passes:
        took = seconds.get(one["name"])
        said = f"{one['forwards']:>8,}  {one['tokens']:>9,}  {'' if took is None else format(took, '>7.2f')}"
        yield Line("", f"  {escape(str(one['name'])):<{wide}}  {said}")
