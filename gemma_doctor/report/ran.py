"""What ran, and how long it took: the whole, and every pass with what was fed, for those who ask (-v)."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.finding import Report
from gemma_doctor.report.escape import escape
from gemma_doctor.report.heading import filled_in
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


def took(report: Report) -> str:
    """ "41 s: import 6.1, load 1.2, generate 19; 7.1 tokens/s"."""
    timing = report.timing
    spent = [f"{name} {_seconds(value)}" for name, value in timing["phases"].items() if value >= 0.05]
    text = f"{_seconds(timing['total'])} s" + (f": {', '.join(spent)}" if spent else "")
    forms = (("tokens_per_second", "{:.1f} tokens/s"), ("peak_memory_mb", "peak {:,.0f} MB"))
    figures = filled_in(timing, forms) if report.subject["weights"] == "real" else []  # a skeleton's speed says nothing
    return "; ".join([text, *figures])


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
