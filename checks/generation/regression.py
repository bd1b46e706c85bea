"""Losses, speed and memory are no worse than in the good run that the baseline holds.

What it proves
    The mean loss per token of the long text, on both sides of the window's edge; the tokens per second of the long
    generation; and the peak memory: each against the figure that `check --baseline FILE --update-baseline` wrote into
    the baseline, with the tolerance that stands beside it there. Better is never a finding.

Why it matters
    Another release, another file of weights, or a setting can make every token cost a little more, or take twice as
    long, while masks, positions and caches are as they should be. Nothing but a figure of a good run shows that.

How to fix
    Compare what differs between the two runs: weights, quantisation, tokenizer, release, threads. Where the new figure
    is meant, --update-baseline writes it down. Tolerances are edited in the file: `absolute_tolerance` in the figure's
    own unit, or `relative_tolerance` as a share of its value; an update keeps them.

Known limits
    Looked at only with --baseline, and not in the run that updates it; on real weights, since a skeleton's figures say
    nothing. Losses are compared where device, dtype, window and the text (its length, and the Python it comes from) are
    the same: they came out the same to the last digit in repeated runs, and a finding needs 0.02 nats. Speed and memory
    depend on transformers, torch, the machine and the lengths as well; all of them must be the same. Speed varies with
    what else the machine does, so that only half of it is a warning; the peak is of the whole process on a CPU.

References
    The baseline is described by baseline.schema.json.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.check import CouldNotLook, NotApplicable, check
from gemma_doctor.evidence import FIGURES, LONG_TEXT, LOSS, GoodRun
from gemma_doctor.finding import Examined, Finding, Location, Severity, counted

DO = "compare weights, release and settings with those of the good run; if this is meant: --update-baseline"


@check()
def regression(run: GoodRun) -> Iterator[Finding | Examined]:
    """Losses, speed and memory are no worse than in the baseline."""
    if not run.recorded:
        raise NotApplicable("the baseline holds no figures: they need real weights")
    compared = [name for name in run.recorded if name in run.measured and name not in run.differs]
    if not compared:
        reasons = dict.fromkeys(run.differs.get(name, "it was not measured") for name in run.recorded)
        raise CouldNotLook(f"no figure of the baseline can be compared: {'; '.join(reasons)}")
    worse = [name for name in compared if _is_worse(name, run)]
    losses = [name for name in worse if FIGURES[name] is LOSS]
    if losses:
        yield _text_costs_more(losses, run)
    for name in worse:
        if name not in losses:
            yield _costs_more(name, run)
    yield Examined(len(compared), _sentence(compared, run))


def _is_worse(name: str, run: GoodRun) -> bool:
    more = run.measured[name] - run.recorded[name].value
    worse_by = more if FIGURES[name].more_is_worse else -more
    return worse_by > run.recorded[name].tolerance


def _text_costs_more(names: list[str], run: GoodRun) -> Finding:
    """One finding, wherever it costs more: what makes a text cost more seldom stops at the edge."""
    return Finding(
        title="the same text costs more than in the baseline",
        severity=Severity.ERROR,
        where=Location(passes=(LONG_TEXT,)),
        observed="; ".join(f"{_words(name)} {_in_digits(name, run.measured[name])}" for name in names),
        expected=f"{'; '.join(_bound(name, run) for name in names)} ({run.file}, {LOSS.unit})",
        do=DO,
        gate="generation",
    )


def _costs_more(name: str, run: GoodRun) -> Finding:
    return Finding(
        title=f"{_words(name)}: worse than in the baseline",
        severity=Severity.WARNING,
        observed=f"{_in_digits(name, run.measured[name])} {FIGURES[name].unit}",
        expected=f"{_bound(name, run)} ({run.file})",
        do=DO,
        standing=True,
    )


def _bound(name: str, run: GoodRun) -> str:
    """ "at most 3.650: the baseline has 3.630, tolerance 0.02"."""
    recorded, more_is_worse = run.recorded[name], FIGURES[name].more_is_worse
    limit = recorded.value + (recorded.tolerance if more_is_worse else -recorded.tolerance)
    bound = "at most" if more_is_worse else "at least"
    return (
        f"{bound} {_in_digits(name, limit)}: the baseline has {_in_digits(name, recorded.value)}, "
        f"tolerance {_tolerance(name, run)}"
    )


def _tolerance(name: str, run: GoodRun) -> str:
    recorded = run.recorded[name]
    if recorded.absolute_tolerance is not None:
        return f"{recorded.absolute_tolerance:g}"
    return f"{recorded.relative_tolerance or 0:.0%}"


def _sentence(compared: list[str], run: GoodRun) -> str:
    said = [
        f"{_words(name)} {_in_digits(name, run.measured[name])} (baseline {_in_digits(name, run.recorded[name].value)})"
        for name in compared
    ]
    left = [name for name in run.recorded if name not in compared]
    if left:
        reason = run.differs.get(left[0], "not measured")
        said.append(f"{counted(len(left), 'figure')} not compared: {reason}")
    return ", ".join(said)


def _words(name: str) -> str:
    return {"peak_memory_mb": "peak memory"}.get(name, name.replace("_", " "))


def _in_digits(name: str, value: float) -> str:
    return f"{value:.3f}" if FIGURES[name] is LOSS else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
