"""What a parity check says of its route: the same for all routes, so that each check is thin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gemma_doctor.check import CouldNotLook, NotApplicable
from gemma_doctor.evidence import CHOICES, SCORE, RouteCase, RouteRun
from gemma_doctor.finding import Examined, Finding, Location, Severity, counted
from gemma_doctor.oracle import FINDING_FLOORS

WHAT = {CHOICES: "token", SCORE: "continuation"}


def is_wrong(case: RouteCase, floors: float = FINDING_FLOORS) -> bool:
    """It crashed, or what came out lies beyond so many noise floors. A refusal is neither wrong nor right."""
    if case.crash is not None:
        return not case.crash.refused
    return not case.finite or bool(case.beyond(floors).any())


def is_right(case: RouteCase) -> bool:
    """Something was compared, and it is what the reference route gives."""
    return case.crash is None and len(case.positions) > 0 and not is_wrong(case)


def parity(route: RouteRun, do: str, floors: float = FINDING_FLOORS) -> Iterator[Finding | Examined]:
    """The route gives the logits of the reference route, crashes nowhere, and is not refused.

    Args:
        route: what was run.
        do: what to do about a difference.
        floors: beyond how many noise floors a difference counts.

    Raises:
        CouldNotLook: nothing could be compared.
        NotApplicable: the library refuses this way of computing.
    """
    severity = Severity.ERROR if route.declared else Severity.WARNING
    compared = [case for case in route.cases if case.crash is None]
    yield from _refusals(route)
    yield from _crashes(route, severity)
    wrong = [case for case in compared if is_wrong(case, floors)]
    if wrong:
        yield _difference(route, wrong, len(compared), severity, do, floors)
    if compared:
        yield Examined(sum(len(case.positions) for case in compared), _sentence(compared, route), route.route)
    elif any(map(is_wrong, route.cases)):
        raise CouldNotLook("nothing could be compared: it crashed each time")
    else:
        raise NotApplicable("the library refuses it")


def _sentence(cases: Sequence[RouteCase], route: RouteRun) -> str:
    """ "27 positions of 5 texts, worst 0.4 noise floors"."""
    positions = sum(len(case.positions) for case in cases)
    floors = max((case.worst / case.floor for case in cases if case.floor and case.finite), default=0.0)
    what = counted(positions, WHAT.get(cases[0].compared, "position"))
    said = f"{what} of {counted(len(cases), 'text')}, worst {floors:.2g} noise floors"
    return f"{said}; on a skeleton of this model" if route.stand_in else said


def _conditions(route: RouteRun) -> str:
    seen = "; seen on a skeleton of this model" if route.stand_in else ""
    return "" if route.declared else f" ({route.condition}{seen})"


def _where(route: RouteRun, cases: Sequence[RouteCase], boundary: str) -> Location:
    passes = tuple(dict.fromkeys(case.pass_name for case in cases if case.pass_name))
    return Location(passes=passes, boundary=boundary, route=route.route)


# --- what ended ------------------------------------------------------------------------------------------------------


def _refusals(route: RouteRun) -> Iterator[Finding]:
    refused = [case for case in route.cases if case.crash is not None and case.crash.refused]
    if refused:
        crash = refused[0].crash
        assert crash is not None
        yield Finding(
            title=f"the library refuses: {route.title}",
            severity=Severity.NOTE,
            where=_where(route, refused, refused[0].name),
            observed=f"{crash.kind}: {crash.message}",
            expected="it runs, or says why not: it says",
            do=f"matters only {route.condition}; another transformers release may offer it",
        )


def _crashes(route: RouteRun, severity: Severity) -> Iterator[Finding]:
    """Crashes of recorded passes are long-generate's business."""
    crashed = [case for case in route.cases if case.crash is not None and is_wrong(case) and not case.pass_name]
    if not crashed:
        return
    first = crashed[0]
    assert first.crash is not None
    layer = "outside of any layer" if first.crash.layer is None else f"layer {first.crash.layer}"
    length = f"{_length(first.crash.total, first)}, " if first.crash.total else ""
    yield Finding(
        title=f"{route.title}: {first.crash.kind}{_conditions(route)}",
        severity=severity,
        where=_where(route, crashed, f"{first.name}, {length}{layer}"),
        observed=f"{first.crash.kind}: {first.crash.message}",
        expected="no exception",
        effect=f"{len(crashed)} of {counted(len(route.cases), 'text')} end in it",
        meanwhile=_meanwhile(route),
        do="use another transformers release, or do without this way",
    )


def _length(total: int, case: RouteCase) -> str:
    """ "total length 64 (= W)"."""
    edge = ""
    if case.window is not None:
        edge = " (= W)" if total == case.window else f" (W{total - case.window:+d})"
    return f"total length {total}{edge}"


def _meanwhile(route: RouteRun) -> str:
    if not route.right:
        return ""
    return f"{' and '.join(route.right)} {'is' if len(route.right) == 1 else 'are'} right (measured)"


# --- what differs ----------------------------------------------------------------------------------------------------


def _difference(
    route: RouteRun, wrong: Sequence[RouteCase], cases: int, severity: Severity, do: str, floors: float
) -> Finding:
    case = wrong[0]
    boundary = case.name
    where = np.flatnonzero(case.beyond(floors))
    if len(where) and case.compared != SCORE:
        token = int(case.positions[where[0]])
        boundary += f", first for token {token}, {_length(token, case)}"
    if case.first_layer is not None:
        boundary += f"; layer {case.first_layer} is the first to differ"
        boundary += f", at token {case.first_layer_at}" if case.first_layer_at is not None else ""
    return Finding(
        title=f"{route.title}: other {WHAT.get(case.compared, 'logit')}s than the reference route{_conditions(route)}",
        severity=severity,
        where=_where(route, wrong, boundary),
        observed=_observed(case),
        expected=f"at most {floors * case.floor:.2g}, {floors:g} noise floors" if case.finite else "finite logits",
        effect=_effect(wrong, cases),
        meanwhile=_meanwhile(route),
        do=do,
        against_reference=True,
    )


def _observed(case: RouteCase) -> str:
    if not case.finite:
        return "NaN or infinity among the logits"
    if case.compared == CHOICES:
        return f"a chosen token lies {case.worst:.3g} below the best one"
    if case.compared == SCORE:
        return f"log-probability off by {case.worst:.3g}"
    return f"logits off by up to {case.worst:.3g}"


def _effect(wrong: Sequence[RouteCase], cases: int) -> str:
    positions = sum(len(case.positions) for case in wrong)
    flips = [(case, int(case.positions[at])) for case in wrong for at in np.flatnonzero(case.flips)]
    worst = max(wrong, key=lambda case: case.worst if case.finite else np.inf)
    said = f"off by {worst.worst:.3g} (noise {worst.floor:.2g})" if worst.finite else "not finite"
    if worst.finite and worst.compared != SCORE:
        said += f"; {len(flips)} of {positions} top tokens change"
        said += f", the first at {flips[0][1]} in {flips[0][0].name}" if flips else ""
    return f"{said}; {len(wrong)} of {counted(cases, 'text')}"
