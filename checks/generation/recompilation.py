"""A compiled decode step is compiled a few times, not at every step.

What it proves
    With a static cache, decode steps of the compiled model go up to the window edge and over it. Graphs are compiled at
    the first steps and where the cache begins to roll; at the last steps none is compiled any more.

Why it matters
    A number that changes at every step and is taken for a constant makes each step compile a graph of its own, which
    takes seconds instead of milliseconds, until torch gives up after eight and runs uncompiled. Nothing is wrong in the
    text.

How to fix
    Let torch treat the number as dynamic (torch.compile's default, not dynamic=False), another transformers release, or
    generate() with a dynamic cache, uncompiled.

Known limits
    torch.compile's default settings. transformers 5.24 compiles three graphs: the first step, the second with its
    lengths dynamic, and the first one that rolls; with dynamic=False that release, 5.12.0 and 4.57.6 compile at every
    step up to torch's limit (measured on a skeleton), which is not looked at here. On a CPU no code is generated. The
    last 3 steps are those that count (`settled_steps`).

References
    transformers issue 44609.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from gemma_doctor.check import CouldNotLook, check
from gemma_doctor.evidence import RouteCase, RouteRun
from gemma_doctor.finding import Examined, Finding, Location, Severity, counted

SETTLED = 3  # of the last steps; before them the cache fills and rolls


@check()
def recompilation(
    route: Annotated[RouteRun, "compiled"], *, settled_steps: float = SETTLED
) -> Iterator[Finding | Examined]:
    """A compiled decode step is compiled a few times, not at every step."""
    looked = [case for case in route.cases if case.crash is None and _steps(case) > settled_steps]
    if not looked:
        raise CouldNotLook("too few compiled decode steps came to their end")
    for case in looked:
        if _late(case, settled_steps):
            yield _finding(case, route, settled_steps)
    steps, graphs = sum(map(_steps, looked)), sum(len(case.compiled_at) for case in looked)
    late = sum(len(_late(case, settled_steps)) for case in looked) or "none"
    said = f"{counted(steps, 'compiled step')}, {graphs} with a new graph, {late} of the last {settled_steps:g}"
    yield Examined(steps, said)


def _steps(case: RouteCase) -> int:
    """Decode steps: what came out first is the prompt's."""
    return max(len(case.positions) - 1, 0)


def _late(case: RouteCase, settled: float) -> list[int]:
    """Tokens of the last steps that had graphs compiled. The step of token t predicts token t + 1."""
    last = int(case.positions[-1]) - 1
    return [token for token in case.compiled_at if token > last - settled]


def _finding(case: RouteCase, route: RouteRun, settled: float) -> Finding:
    late, steps = _late(case, settled), _steps(case)
    edge = "" if case.window is None else f" (window {case.window:,})"
    return Finding(
        title=f"a compiled decode step is compiled again and again ({route.condition})",
        severity=Severity.WARNING,
        where=Location(boundary=f"{case.name}, still at token {late[-1]}{edge}"),
        observed=f"graphs were compiled at {len(case.compiled_at)} of {counted(steps, 'step')}, at {len(late)} of the "
        f"last {settled:g}",
        expected=f"none at the last {settled:g}: shapes and window state are the same there",
        effect="seconds a step until torch's limit of recompilations, then uncompiled steps; the text is right",
        do="torch.compile without dynamic=False, another transformers release, or no compilation",
        standing=True,
    )
