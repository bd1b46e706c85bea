"""The passes of the core checklist: what is run with the recorder on, each at most once.

Lengths are taken around the window edge: a prompt below W that generates across it, prompts of W-1, W and W+1, one well
beyond, the tokens of that one scored in one forward, a second turn whose tokens cross the edge in one forward, and a
padded batch of unequal rows.

The attention weights are read out at the decode steps around and beyond the edge, and in a few rows of the scored text
and of the padded batch's prefill.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gemma_doctor.capture import ledger, runs
from gemma_doctor.capture.continuations import Continuations
from gemma_doctor.capture.recorder import Recorder
from gemma_doctor.capture.reference import References
from gemma_doctor.capture.runs import Run
from gemma_doctor.capture.taken import Batch, Taken
from gemma_doctor.capture.tokens import Tokens, padded
from gemma_doctor.capture.wanted import around, decode_steps, some_rows
from gemma_doctor.check import CouldNotLook
from gemma_doctor.evidence import LONG_GENERATE, Bools, LayerRotation, ModelFacts, Pass
from gemma_doctor.loading import Patient
from gemma_doctor.settings import Progress, Settings

# A model without a window is walked across this many tokens instead.
EDGE_WITHOUT_WINDOW = 64
# Edge of brief passes, where it can be chosen: prompts below it still have room for the texts of every route.
BRIEF_EDGE = 24
BEFORE_EDGE = 8
STEPS = 4
TRUE_WINDOW_STEPS = 16
# A prompt grows the cost of a skeleton's true window with its square: 4,096 takes seconds, 131,072 would take an hour.
LONGEST_TRUE_WINDOW = 8192
LONGEST_ON_A_GPU = 65_536  # one mask of 131,072 x 131,072 takes 17 GB
SECOND_TURN_TOKENS = 12


class Passes:
    """Runs passes on one patient.

    Args:
        brief: leave out what asks the same at other lengths: prompts at the very edge, the true window, most steps.

    Attributes:
        done: finished passes by name, in the order in which they ran.
        taken: what came out of each, by the same names.
        rotations: per layer, from the first pass that showed them.
        timing: seconds, tokens per second and peak memory of the long generation.
        unreadable: why calls that should have been read could not be, "" if all could.
        window: W in force in most passes, None without one.
        unbearable: why prompts around the edge cannot be run, "" if they can.
        references: the reference route.
        continuations: what is generated on prompts of their own.
    """

    def __init__(
        self, patient: Patient, facts: ModelFacts, settings: Settings, progress: Progress, brief: bool = False
    ) -> None:
        self.patient, self.facts, self.settings, self.progress = patient, facts, settings, progress
        self._brief = brief
        self.unbearable = ""
        longest = LONGEST_TRUE_WINDOW if patient.device == "cpu" else LONGEST_ON_A_GPU
        if (patient.reduced_window or 0) > longest:
            self.unbearable = (
                f"prompts around a window of {patient.reduced_window:,} tokens would take hours and all memory "
                f"({patient.device}); --weights skeleton runs at a smaller one"
            )
        self.text = Tokens(patient, settings.prompts, settings.seed)
        self.done: dict[str, Pass] = {}
        self.rotations: dict[int, LayerRotation] = {}
        self.timing: dict[str, float] = {}
        self.unreadable = ""
        self.taken: dict[str, Taken] = {}
        self.window = window = patient.reduced_window
        self.references = References(patient.reduced, facts.shares_kv, window)
        self.edge = window if window is not None and window > 0 else BRIEF_EDGE if brief else EDGE_WITHOUT_WINDOW
        self.continuations = Continuations(self, brief)
        # None where the configuration names no limit that a prompt could keep
        self._positions = facts.loaded.max_positions if (facts.loaded.max_positions or 0) > 1 else None

    def run_all(self) -> None:
        """Run what has not been run yet, in a fixed order."""
        _ = self.prompts()
        if self.facts.causal:
            _ = self.scored
            _ = self.second_turn
        _ = self.batch
        if self.facts.causal:
            _ = self.continuations.all
        window = self.patient.window if not self._brief else None
        if window is not None and window != self.patient.reduced_window and window <= LONGEST_TRUE_WINDOW:
            self._simple("true window", window - BEFORE_EDGE, TRUE_WINDOW_STEPS, true_window=True)

    def prompts(self) -> tuple[str, ...]:
        """Run one prompt after the other: from below the edge to beyond it. Returns the names of their passes."""
        edge = self.edge
        lengths = {self._edge_name(delta): edge + delta for delta in (-1, 0, 1) if not self._brief}
        lengths[self._beyond[0]] = self._beyond[1]
        if self.facts.causal:
            _ = self.continuations.long  # made by being asked for
            if self.text.user is not None:
                self._simple(self._edge_name(-BEFORE_EDGE), edge - BEFORE_EDGE, TRUE_WINDOW_STEPS)
        for name, length in lengths.items():
            self._simple(name, length)
        names = (LONG_GENERATE, self._edge_name(-BEFORE_EDGE), *lengths)
        return tuple(name for name in names if name in self.done)

    @property
    def _beyond(self) -> tuple[str, int]:
        """Name and length of the prompt well beyond the edge."""
        length = 2 * self.edge if self._positions is None else max(min(2 * self.edge, self._positions - STEPS), 1)
        return "prompt 2W" if self.patient.window and length == 2 * self.edge else f"prompt of {length}", length

    def asked(self, prompt: int) -> int:
        """New tokens for the long generation: across the edge by the margin, what the user allows, what fits."""
        wanted = self.settings.max_new_tokens or max(self.edge - prompt, 0) + self.settings.margin
        return min(wanted, self.room(prompt))

    def room(self, prompt: int) -> int:
        """New tokens that the model has positions for after a prompt, at least one."""
        return sys.maxsize if self._positions is None else max(self._positions - prompt, 1)

    @property
    def below_edge(self) -> int:
        """Length of the long generation's prompt, where nobody gave one."""
        length = max(2, self.edge - (STEPS if self._brief else BEFORE_EDGE))
        return length if self._positions is None else min(length, self._positions - 1)

    @cached_property
    def batch(self) -> Batch:
        """Rows of unequal length in one batch, padded on the left, as generate() wants them."""
        wanted = (self.edge + STEPS, self.edge - 3, self.edge // 2 + 1)
        longest = max(wanted) if self._positions is None else max(self._positions - STEPS, 1)
        lengths = [min(length, longest) for length in wanted if length > 0]
        rows = tuple(self._prompt(length, offset=17 * index)[0] for index, length in enumerate(lengths))
        columns = max(lengths)
        ids, mask = padded(rows, "left", self.patient.pad_token_id)
        real: Bools = mask.bool().cpu().numpy()
        self.progress("padded batch")

        def again(recorder: Recorder) -> Run:
            return self._run(self.patient.reduced, ids, STEPS, recorder, mask)

        with ledger.entry("padded batch"):
            run = again(Recorder(real, some_rows(self.edge, STEPS)))
        self.taken["padded batch"] = Taken(run, columns, mask, again)
        return Batch(self.finished("padded batch", run, columns, padded=True), run, rows, real)

    def right_padded(self) -> tuple[Bools, tuple[torch.Tensor, ...]]:
        """The rows of the batch, padded on the right: which columns are real, and what generate() goes on from.

        Raises:
            CouldNotLook: it crashed.
        """
        ids, mask = padded(self.batch.rows, "right", self.patient.pad_token_id)
        real: Bools = mask.bool().cpu().numpy()
        with ledger.entry("padded batch, on the right"):
            run = self._run(self.patient.reduced, ids, 1, Recorder(real, masks=False), mask)
        if run.crash:
            raise CouldNotLook(f"the batch padded on the right crashed: {run.crash.kind}: {run.crash.message}")
        return real, run.logits

    def _simple(self, name: str, length: int, steps: int = STEPS, true_window: bool = False) -> None:
        """A prompt of exactly `length` tokens, alone, and a few decode steps. Lengths the model lacks are left out."""
        if name in self.done or length < 1 or not self.fits(length + steps):
            return
        self.progress(f"{name}: {length:,} tokens")
        ids = self._prompt(length)
        model = self.patient.model if true_window else self.patient.reduced
        window = self.patient.window if true_window else self.patient.reduced_window
        # a skeleton's prefill at the true window would be read at a cost of many seconds
        wanted = around(window) if true_window and window else decode_steps

        def again(recorder: Recorder) -> Run:
            return self._run(model, ids, steps, recorder, torch.ones_like(ids))

        with ledger.entry(name):
            run = again(Recorder(_all_real(ids), wanted))
        self.taken[name] = Taken(run, length, None, again)
        self.finished(name, run, length, window=window)

    @cached_property
    def scored(self) -> str:
        """One forward over the tokens of the prompt beyond the edge, as a text is scored. Returns the pass's name, ""
        if that prompt was not run to its end.
        """
        _ = self.prompts()
        beyond = self.taken.get(self._beyond[0])
        if beyond is None or beyond.run.crash is not None:
            return ""
        same_as, tokens = self._beyond[0], beyond.run.tokens
        name = same_as.replace("prompt", "scored")
        self.progress(f"{name}: {tokens.shape[1]:,} tokens")
        mask, use_cache = torch.ones_like(tokens), self.facts.shares_kv

        def again(recorder: Recorder) -> Run:
            return runs.forward(self.patient.reduced, tokens, mask, recorder, use_cache=use_cache, last=STEPS)

        with ledger.entry(name):
            run = again(Recorder(_all_real(tokens), some_rows(self.edge, STEPS)))
        self.taken[name] = Taken(run, tokens.shape[1], None, again)
        self.finished(name, run, tokens.shape[1], same_tokens_as=same_as)
        return name

    @cached_property
    def second_turn(self) -> str:
        """Generate, then hand the returned cache back with more tokens, which cross the edge in one forward.

        Returns the pass's name, "" if the model has no positions for it.
        """
        length = max(1, self.edge - SECOND_TURN_TOKENS + 2)
        if not self.fits(length + SECOND_TURN_TOKENS + 2 * STEPS):
            return ""
        self.progress("second turn")
        first = self._prompt(length)
        model = self.patient.reduced

        def again(recorder: Recorder) -> Run:
            run = runs.generate(model, first, STEPS, recorder=recorder)
            if run.crash is not None:
                return run
            ids = torch.cat([run.tokens, self._prompt(SECOND_TURN_TOKENS, offset=500)], dim=1)
            return runs.generate(model, ids, STEPS, recorder=recorder, cache=run.cache)

        with ledger.entry("second turn"):
            run = again(Recorder(_all_real(first), decode_steps))
        self.taken["second turn"] = Taken(run, length + STEPS + SECOND_TURN_TOKENS, None, again)
        return self.finished("second turn", run, length).name

    def fits(self, length: int) -> bool:
        return self._positions is None or length <= self._positions

    def _run(self, model: Any, ids: torch.Tensor, steps: int, recorder: Recorder, mask: torch.Tensor) -> Run:
        """Generate; a model that does not generate makes one forward instead."""
        if self.facts.causal:
            return runs.generate(model, ids, steps, recorder=recorder, attention_mask=mask)
        return runs.forward(model, ids, mask, recorder)

    def finished(self, name: str, run: Run, prompt: int, **changes: Any) -> Pass:
        """Keep a run as evidence; `changes` are fields of Pass that differ from the usual."""
        self.rotations = self.rotations or run.recorder.rotations
        self.unreadable = self.unreadable or run.recorder.unreadable
        made = Pass(
            name=name,
            window=self.patient.reduced_window,
            prompt_length=prompt,
            padded=False,
            forwards=run.forwards,
            crash=run.crash,
        )
        self.done[name] = replace(made, **changes)
        return self.done[name]

    def _prompt(self, length: int, offset: int = 0) -> torch.Tensor:
        """Shape (1, length), on the patient's device."""
        return self.text.exact(length, offset)[None].to(self.patient.device)

    def _edge_name(self, delta: int) -> str:
        if self.patient.reduced_window is None:
            return f"prompt of {self.edge + delta}"
        return "prompt W" + (f"{delta:+d}" if delta else "")


def _all_real(ids: torch.Tensor) -> Bools:
    """The attention mask of prompts without pads."""
    return np.ones(tuple(ids.shape), dtype=bool)
