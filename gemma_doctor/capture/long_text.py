"""Runs one long text: in chunks with a cache, on the reference route, and pieces of it below the window as a control.

Nothing of N x N is made but on the reference route, which runs over no more of the text than fits. Only the tokens
that are scored meet the head: all of 1,536 x 262,144 logits would take as long as the text itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from gemma_doctor import compat
from gemma_doctor.capture import device, estimate, ledger, losses, runs
from gemma_doctor.capture.course import course
from gemma_doctor.capture.passes import Passes
from gemma_doctor.capture.recorder import Recorder
from gemma_doctor.capture.reference import FLOOR_EPS
from gemma_doctor.capture.text_scores import Scores, answered, numbers, scores
from gemma_doctor.check import CouldNotLook, NotApplicable
from gemma_doctor.errors import in_one_line
from gemma_doctor.evidence import LONG_TEXT, Crash, Fact, Floats, LongText, Region, StepByStep, frozen
from gemma_doctor.oracle import EPSILON, FINDING_FLOORS

STEPS = 16  # decode steps, where plain generation is asked as well
# Tokens of the reference route at most: 4,096 x 4,096 scores of 4 heads take 268 MB in float32, and several are made.
MOST_REFERENCE = 4096
COPIES, SHARE = 4, 0.25  # of the scores of one layer; of the memory there is


def long_text(passes: Passes) -> LongText:
    """The text of `settings.length` tokens and what three runs over it gave.

    Raises:
        NotApplicable: random weights, no tokenizer, a model that does not generate, or nothing to measure in a text.
        CouldNotLook: memory is short.
    """
    patient = passes.patient
    if patient.subject.weights != "real":
        raise NotApplicable("needs trained weights")
    if patient.tokenizer is None:
        raise NotApplicable("needs a tokenizer")
    if not passes.facts.causal:
        raise NotApplicable("bidirectional: it does not generate")
    if patient.window is not None and patient.window < 1:
        raise NotApplicable(f"no text crosses a window of {patient.window}")
    if patient.dtype != "float32" and compat.has_experts(patient.model):
        raise CouldNotLook("half precision: rounding lets tokens choose other experts")
    return _Runs(passes).evidence()


class _Runs:
    """One text and its runs."""

    def __init__(self, passes: Passes) -> None:
        self._passes, self._patient = passes, passes.patient
        self._model = passes.patient.model
        self._course = course(passes)
        self._ids = self._course.ids.to(self._patient.device)

    def evidence(self) -> LongText:
        length = len(self._ids)
        blank = LongText(
            pass_name=LONG_TEXT,
            source=self._passes.text.source_of(length),
            length=length,
            window=self._patient.window,
            edge=self._course.edge,
            chunk=self._course.chunk,
            regions=(),
            facts=(),
            noise=0.0,
            no_facts=self._course.why_none,
        )
        self._passes.progress(f"{LONG_TEXT}: {length:,} tokens in chunks of {self._course.chunk}{self._about()}")
        cached = self._cached()
        if isinstance(cached, Crash):
            return replace(blank, crash=cached)
        reference, reached, why_not = self._reference()
        noise = self._noise(reference, reached)
        found = replace(
            blank,
            regions=tuple(self._region(index, cached, reference) for index in range(len(self._course.regions))),
            facts=tuple(
                Fact(one.distance, float(said), None if reference is None or np.isnan(exact) else float(exact))
                for one, said, exact in zip(
                    self._course.questions,
                    cached.recall,
                    cached.recall if reference is None else reference.recall,
                    strict=True,
                )
            ),
            noise=noise,
            no_reference=why_not,
        )
        return found if reference is None else self._asked_again(found, cached, reference)

    def _about(self) -> str:
        """How long it will take, where that is known."""
        length, more = len(self._ids), self._most_reference() + 2 * (self._course.edge or 0)
        spent = estimate.seconds_of_text(self._patient, self._passes.facts, length, more, 4 * len(self._course.columns))
        return "" if spent is None else f", about {spent:.0f} s"

    # --- the runs ----------------------------------------------------------------------------------------------------

    def _cached(self) -> Scores | Crash:
        """The whole text in chunks, with the library's own cache."""
        model, fed = self._model, 0
        try:
            with ledger.entry(f"{LONG_TEXT}, cached"), torch.inference_mode(), compat.quiet():
                cache, found = compat.dynamic_cache(model), []
                rows = torch.tensor(self._course.rows, dtype=torch.long, device=self._ids.device)
                for part in torch.split(self._ids, self._course.chunk):
                    given = compat.cache_argument(cache) | compat.place_argument(model, cache, fed, len(part))
                    hidden = losses.hidden_states(model, part, use_cache=True, **given)
                    found.append(hidden[rows[(rows >= fed) & (rows < fed + len(part))] - fed])
                    fed += len(part)
                    if fed % 4096 < self._course.chunk and fed < len(self._ids):
                        self._passes.progress(f"{LONG_TEXT}: {fed:,} of {len(self._ids):,} tokens")
                return self._scores(model, torch.cat(found), self._course.rows)
        except Exception as error:
            runs.only_the_subjects(error)
            if not compat.dynamic_cache_takes_config():  # up to 4.55: generate() may make another cache
                raise CouldNotLook(f"a dynamic cache takes no chunks in this release: {in_one_line(error)}") from error
            chunk = self._course.chunk
            return Crash(type(error).__name__, in_one_line(error), fed // chunk, fed + chunk, layer=None)

    def _reference(self) -> tuple[Scores | None, int, str]:
        """What the reference route gave, how many tokens it read, and why it did not read all of them."""
        reached, why = self._most_reference(), ""
        if reached < len(self._ids):
            why = f"the scores of {len(self._ids):,} x {len(self._ids):,} tokens do not fit: it reads {reached:,}"
        try:
            exact = self._passes.references.exact
            with compat.attention_backend_set(exact, "eager"):
                return self._uncached(exact, reached, "reference"), reached, why
        except CouldNotLook as error:
            return None, 0, str(error)
        except Exception as error:
            runs.only_the_subjects(error)
            return None, 0, f"the reference route fails: {type(error).__name__}: {in_one_line(error)}"

    def _most_reference(self) -> int:
        """Tokens whose scores fit in memory."""
        heads = max((one.query_heads for one in self._passes.facts.layers), default=1)
        try:
            room = SHARE * device.device_memory(self._patient).total
        except CouldNotLook:
            room = float(2**30)
        return min(len(self._ids), MOST_REFERENCE, int((room / (4 * heads * COPIES)) ** 0.5))

    def _uncached(self, model: Any, reached: int, name: str) -> Scores:
        """One forward over the first `reached` tokens; cached where layers share keys."""
        rows = [row for row in self._course.rows if row < reached - 1]
        with ledger.entry(f"{LONG_TEXT}, {name}"), compat.quiet():
            hidden = losses.hidden_states(model, self._ids[:reached])[
                torch.tensor(rows, dtype=torch.long, device=self._ids.device)
            ]
            return self._scores(model, hidden, rows)

    def _noise(self, reference: Scores | None, reached: int) -> float:
        """How far losses of one token on two healthy routes may lie apart.

        A loss moves by twice as much as the logits at most. In half precision it is measured: the plain route against
        the reference.
        """
        if reference is None:
            return 0.0
        if self._patient.dtype == "float32":
            return 2 * FLOOR_EPS * EPSILON["float32"] * reference.largest
        plain = self._uncached(self._model, reached, "rounding")
        pairs = ((plain.losses, reference.losses), (plain.recall, reference.recall))
        return max(float(np.nanmax(np.abs(one - other), initial=0.0)) for one, other in pairs)

    def _control(self, first: int, last: int) -> Floats | None:
        """Losses of some tokens in a text of BOS and as many before them as lie below the edge."""
        edge = self._course.edge
        assert edge is not None
        start = max(last - edge + 3, 1)
        ids = torch.cat([self._ids[:1], self._ids[start : last + 1]])
        positions = torch.arange(first - start + 1, last - start + 2)
        try:
            with ledger.entry(f"{LONG_TEXT}, control"), compat.quiet():
                return numbers(losses.losses(self._model, ids, positions))
        except Exception as error:
            runs.only_the_subjects(error)
            return None

    # --- what came out -----------------------------------------------------------------------------------------------

    def _scores(self, model: Any, hidden: torch.Tensor, rows: Sequence[int]) -> Scores:
        """Of hidden states at some rows, in order."""
        targets = self._ids[torch.tensor(rows, dtype=torch.long, device=self._ids.device) + 1]
        scored = sum(row < self._course.body - 1 for row in rows)
        return scores(model, hidden, targets, scored, [one.answer for one in self._course.questions])

    def _region(self, index: int, cached: Scores, reference: Scores | None) -> Region:
        name, first, last = self._course.regions[index]
        before = sum(end - start + 1 for _, start, end in self._course.regions[:index])
        here = slice(before, before + last - first + 1)
        reached = reference is not None and len(reference.losses) >= here.stop
        return Region(
            name=name,
            first=first,
            cached=frozen(cached.losses[here]),
            reference=frozen(reference.losses[here]) if reference is not None and reached else None,
            control=self._control(first, last) if self._course.edge and last >= self._course.edge else None,
        )

    def _asked_again(self, found: LongText, cached: Scores, reference: Scores) -> LongText:
        """With what plain generation says where the two differ most, if they do."""
        if not np.isfinite(reference.losses).all():  # nothing to compare with
            return found
        far, text, facts = FINDING_FLOORS * found.noise, None, None
        pairs = zip(self._course.columns, cached.losses, reference.losses, strict=False)
        column, ours, theirs = max(pairs, key=_difference, default=(0, 0.0, 0.0))
        if not abs(ours - theirs) <= far:
            text = self._step_by_step(column, None, float(ours), float(theirs))
        asked = zip((one.column + 1 for one in self._course.questions), cached.recall, reference.recall, strict=True)
        known = [one for one in asked if not np.isnan(one[2])]
        column, ours, theirs = max(known, key=_difference, default=(0, 0.0, 0.0))
        if not abs(ours - theirs) <= far:
            answers = torch.tensor([one.answer for one in self._course.questions], device=self._ids.device)
            facts = self._step_by_step(column, answers, float(ours), float(theirs))
        return replace(found, text_again=text, facts_again=facts)

    def _step_by_step(
        self, column: int, among: torch.Tensor | None, cached: float, reference: float
    ) -> StepByStep | None:
        """What generate() gives at one token when it is led there: a prefill, and a few decode steps."""
        start = max(1, column - STEPS)
        ids = self._ids[None, :start]
        with ledger.entry(f"{LONG_TEXT}, step by step"):
            run = runs.generate(
                self._model,
                ids,
                column - start + 1,
                recorder=Recorder(np.ones(tuple(ids.shape), dtype=bool), masks=False),
                forced=self._ids[start : column + 1],
            )
        if run.crash is not None or not run.logits:
            return None
        logits, target = run.logits[-1].float(), self._ids[column][None]
        said = -logits.log_softmax(dim=1)[0, target] if among is None else answered(logits, target, among)
        return StepByStep(column, column - start, cached, reference, float(said[0]))


def _difference(one: tuple[int, float, float]) -> float:
    """NaN is farthest."""
    apart = abs(one[1] - one[2])
    return float("inf") if np.isnan(apart) else float(apart)
