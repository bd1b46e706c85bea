"""Runs routes and holds what came out against the reference route."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch

from gemma_doctor import compat
from gemma_doctor.capture.attempt import Attempt, Text
from gemma_doctor.capture.hidden import HiddenStates
from gemma_doctor.capture.lab import EXPERTS, Lab
from gemma_doctor.capture.passes import Passes
from gemma_doctor.capture.recorder import says_no
from gemma_doctor.capture.reference import FLOOR_EPS
from gemma_doctor.capture.runs import only_the_subjects
from gemma_doctor.check import CouldNotLook, NotApplicable
from gemma_doctor.errors import in_one_line
from gemma_doctor.evidence import CHOICES, LOGITS, SCORE, Crash, RouteCase, RouteRun, frozen
from gemma_doctor.loading import Patient
from gemma_doctor.oracle import EPSILON, FINDING_FLOORS, FLIP_FLOORS
from gemma_doctor.parity import is_right, is_wrong
from gemma_doctor.routes import PLAIN, Route, all_routes, declared
from gemma_doctor.settings import Settings

NOT_CAUSAL = "bidirectional: it does not generate"


class Routes:
    """The routes of one patient, each run once.

    Args:
        patient, passes, settings: as of any run.
        stand_in: the patient is a skeleton that stands for a subject with real weights.
        brief: say of a wrong case only that it is wrong, not where it begins, nor what would be right.

    Attributes:
        passes: as given.
        declared: ids of the routes in use.
    """

    def __init__(
        self, patient: Patient, passes: Passes, settings: Settings, stand_in: bool = False, brief: bool = False
    ) -> None:
        self._patient, self._stand_in, self._brief = patient, stand_in, brief
        self.passes = passes
        self.declared = declared(settings.routes, settings.depth)
        self._thorough = patient.subject.weights == "skeleton" or settings.depth == "deep"
        self._runs: dict[str, RouteRun] = {}

    def threads(self) -> AbstractContextManager[None]:
        """See `Patient.threads`."""
        return self._patient.threads()

    def run(self, name: str) -> RouteRun:
        """Run one route.

        Raises:
            NotApplicable: the subject or the release does not offer it.
            CouldNotLook: it could not be run, or the reference route could not.
        """
        if name not in self._runs:
            self._runs[name] = self._run(all_routes()[name])
        return self._runs[name]

    def case(self, attempt: Attempt) -> RouteCase:
        """One attempt against the reference route over the same tokens."""
        blank = RouteCase(
            name=attempt.name,
            compared=attempt.compared,
            window=self.passes.window,
            positions=frozen(np.zeros(0, dtype=np.int64)),
            deviation=frozen(np.zeros(0)),
            flips=frozen(np.zeros(0, dtype=bool)),
            floor=0.0,
            pass_name=attempt.pass_name,
            crash=attempt.crash,
            compiled_at=attempt.compiled_at,
        )
        return blank if attempt.crash is not None else self._compared(blank, attempt)

    def _run(self, route: Route) -> RouteRun:
        if route.generates and not self.passes.facts.causal:
            raise NotApplicable(NOT_CAUSAL)
        if self._patient.dtype != "float32" and compat.has_experts(self._patient.model):
            raise NotApplicable(EXPERTS)
        self.passes.progress(f"route: {route.title}")
        lab = self._lab(route)
        cases: list[RouteCase] = []
        right: tuple[str, ...] | None = None
        for index, attempt in enumerate(_attempts(route, lab)):
            case = self.case(attempt)
            if is_wrong(case) and not self._brief:
                if right is None:
                    case = self._located(route, index, case, attempt)
                # what does not help in one case is no way out
                right = self._right(route, index, attempt, among=right)
            cases.append(case)
        if not cases:
            raise NotApplicable("the model has no positions for such texts")
        title, in_use = route.title, route.id in self.declared
        return RouteRun(route.id, title, route.condition, in_use, tuple(cases), right or (), self._stand_in)

    def _lab(self, route: Route, **options: Any) -> Lab:
        return Lab(self._patient, self.passes, thorough=self._thorough or route.id in self.declared, **options)

    # --- against the reference ---------------------------------------------------------------------------------------

    def _compared(self, blank: RouteCase, attempt: Attempt) -> RouteCase:
        last = len(attempt.tokens) - attempt.first
        reference = self.passes.references.over(attempt.tokens[None], last, deployed=attempt.model)
        floor, expected = reference.floor, reference.logits
        if attempt.compared == LOGITS:
            assert attempt.logits is not None
            found = attempt.logits.float()
            expected = expected[: len(found)]
            deviation = (found - expected).abs().amax(dim=1)
            best = expected.max(dim=1).values
            flips = best - expected.gather(1, found.argmax(dim=1)[:, None])[:, 0] > FLIP_FLOORS * floor
            finite = bool(found.isfinite().all())
        else:
            chosen = attempt.tokens[attempt.first + 1 :, None]
            expected = expected[: len(chosen)]
            if attempt.compared == CHOICES:
                ends = compat.end_tokens(self._patient.reduced)
                expected = compat.suppressed(expected, ends)  # as the generation did
                if attempt.among is not None:
                    expected = compat.only(expected, attempt.among[: len(expected)])
                deviation = expected.max(dim=1).values - expected.gather(1, chosen)[:, 0]
                flips, finite = deviation > FLIP_FLOORS * floor, True
            else:
                assert attempt.compared == SCORE and attempt.score is not None
                said = expected.log_softmax(dim=1).gather(1, chosen).sum()
                deviation, floor = (said - attempt.score).abs()[None], floor * len(chosen)
                flips, finite = torch.zeros(1, dtype=torch.bool), bool(np.isfinite(attempt.score))
        positions = np.arange(attempt.first + 1, attempt.first + 1 + len(deviation))
        return replace(
            blank,
            positions=frozen(positions),
            deviation=frozen(deviation.double().cpu().numpy()),
            flips=frozen(flips.cpu().numpy()),
            floor=floor,
            finite=finite,
        )

    # --- what else is to be known of a case that is wrong ------------------------------------------------------------

    def _again(self, route: Route, index: int, **options: Any) -> Attempt | None:
        """The same attempt once more, with further options of its Lab; None if it is not made now."""
        try:
            return next(islice(_attempts(route, self._lab(route, again=True, **options)), index, None), None)
        except (NotApplicable, CouldNotLook):
            return None

    def _located(self, route: Route, index: int, case: RouteCase, attempt: Attempt) -> RouteCase:
        """With the first layer whose hidden states leave those of the reference.

        Looked for in float32 alone: in half precision nobody has measured how far healthy states lie apart.
        """
        in_float32 = self._patient.dtype == "float32" and attempt.model is None
        if case.crash is not None or case.compared == SCORE or not in_float32:
            return case
        states = HiddenStates()
        again = self._again(route, index, watching=lambda: states.watching(self._patient.reduced))
        if again is None or again.crash is not None or not states.layers:
            return case
        exact = HiddenStates()
        with exact.watching(self.passes.references.exact):
            self.passes.references.rerun(again.tokens[None])
        wrong = np.flatnonzero(case.beyond(FINDING_FLOORS))
        first_wrong = int(case.positions[wrong[0]]) if len(wrong) else len(again.tokens)
        pads = again.pads if again.pad_side == "left" else 0
        factor = FINDING_FLOORS * FLOOR_EPS * EPSILON["float32"]
        for layer in range(len(exact.layers)):
            ours, theirs = states.row(layer, again.row, pads), exact.row(layer, 0, 0)
            largest = max((float(one.abs().max()) for one in theirs.values()), default=0.0)
            # later columns may be those of drafts that were not taken
            for token in sorted(one for one in ours.keys() & theirs.keys() if one < first_wrong):
                if not float((ours[token] - theirs[token]).abs().max()) <= factor * largest:
                    return replace(case, first_layer=layer, first_layer_at=token)
        return case

    def _right(self, route: Route, index: int, attempt: Attempt, among: tuple[str, ...] | None) -> tuple[str, ...]:
        """Other ways that are right for the same text, in words; of `among`, if that is given."""
        ways = self._others(route, index, attempt)
        return tuple(
            said
            for said, run in ways
            if (among is None or said in among) and (other := run()) and self._is_right(other)
        )

    def _is_right(self, attempt: Attempt) -> bool:
        try:
            return is_right(self.case(attempt))
        except CouldNotLook:
            return False

    def _others(self, route: Route, index: int, attempt: Attempt) -> Iterator[tuple[str, Callable[[], Attempt | None]]]:
        """Ways that could be right, and what runs each."""
        for name in compat.other_backends(self._patient.reduced, self._patient.backend):
            yield f"attn_implementation={name!r}", partial(self._again, route, index, backend=name)
        new = attempt.asked or len(attempt.tokens) - attempt.first - 1
        if not self.passes.facts.causal or new < 1 or attempt.model is not None:
            return  # what comes next runs on the subject as it is
        lab, text = self._lab(route), Text(attempt.name, attempt.tokens, attempt.first + 1, new)
        if not attempt.alone:
            yield "each row alone", partial(lab.generate, text)
            return
        if route.id != "uncached-generate":
            yield "use_cache=False", partial(lab.generate, text, use_cache=False)
        if route.id not in PLAIN:
            yield "plain generate()", partial(lab.generate, text)


def _attempts(route: Route, lab: Lab) -> Iterator[Attempt]:
    """What a route yields; an exception outside of any run (a cache that the library cannot build) comes last.

    Raises:
        NotApplicable, CouldNotLook: see `Route.run`; also if memory is short.
    """
    try:
        yield from route.run(lab)
    except (NotApplicable, CouldNotLook):
        raise
    except Exception as error:
        only_the_subjects(error)
        kind, message, refused = type(error).__name__, in_one_line(error), says_no(error)
        crash = Crash(kind, message, step=0, total=0, layer=None, refused=refused)
        yield Attempt("before any forward", torch.zeros(0, dtype=torch.long), first=0, crash=crash)
