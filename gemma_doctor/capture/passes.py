"""The passes of the core checklist: what is run with the recorder on, each at most once.

Lengths are taken around the window edge: a prompt below W that generates across it, prompts of W-1, W and W+1, one well
beyond, the tokens of that one scored in one forward, a second turn whose tokens cross the edge in one forward, and a
padded batch of unequal rows.

The attention weights are read out at the decode steps around and beyond the edge, and in a few rows of the scored text
and of the padded batch's prefill.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gemma_doctor.capture import runs
from gemma_doctor.capture.recorder import Recorder, Wanted
from gemma_doctor.capture.runs import Heartbeat, Reference, Run
from gemma_doctor.capture.tokens import Tokens
from gemma_doctor.check import CouldNotLook
from gemma_doctor.evidence import Bools, LayerRotation, ModelFacts, Pass
from gemma_doctor.loading import Patient
from gemma_doctor.settings import Progress, Settings

# A model without a window is walked across this many tokens instead.
EDGE_WITHOUT_WINDOW = 64
BEFORE_EDGE = 8
STEPS = 4
TRUE_WINDOW_STEPS = 16
# A prompt grows the cost of a skeleton's true window with its square: 4,096 takes seconds, 131,072 would take an hour.
LONGEST_TRUE_WINDOW = 8192
SECOND_TURN_TOKENS = 12
EVERY = 16  # a cache can go wrong later as well


@dataclass(frozen=True)
class Crossing:
    """The long generation.

    Attributes:
        recorded: its pass.
        run: tokens and crash.
        reference: the reference route over the same tokens, None if it could not be run.
        why_no_reference: the reason then.
    """

    recorded: Pass
    run: Run
    reference: Reference | None
    why_no_reference: str


@dataclass(frozen=True)
class Batch:
    """The padded batch. `rows` are its prompts, each of shape (n,); `real` its attention mask, (rows, columns)."""

    recorded: Pass
    run: Run
    rows: tuple[torch.Tensor, ...]
    real: Bools


class Passes:
    """Runs passes on one patient.

    Attributes:
        done: finished passes by name, in the order in which they ran.
        rotations: per layer, from the first pass that showed them.
        timing: seconds, tokens per second and peak memory of the long generation.
        unreadable: why calls that should have been read could not be, "" if all could.
    """

    def __init__(self, patient: Patient, facts: ModelFacts, settings: Settings, progress: Progress) -> None:
        self.patient, self.facts, self.settings, self.progress = patient, facts, settings, progress
        self.text = Tokens(patient, settings.prompt, settings.seed)
        self.done: dict[str, Pass] = {}
        self.rotations: dict[int, LayerRotation] = {}
        self.timing: dict[str, float] = {}
        self.unreadable = ""
        window = patient.reduced_window
        self.edge = window if window is not None and window > 0 else EDGE_WITHOUT_WINDOW
        # None where the configuration names no limit that a prompt could keep
        self._positions = facts.loaded.max_positions if (facts.loaded.max_positions or 0) > 1 else None

    def run_all(self) -> None:
        """Run what has not been run yet, in a fixed order."""
        edge, causal = self.edge, self.facts.causal
        if causal:
            _ = self.crossing  # made by being asked for
            if self.text.user is not None:
                self._simple(self._edge_name(-BEFORE_EDGE), edge - BEFORE_EDGE, TRUE_WINDOW_STEPS)
        for delta in (-1, 0, 1):
            self._simple(self._edge_name(delta), edge + delta)
        beyond_edge = 2 * edge if self._positions is None else max(min(2 * edge, self._positions - STEPS), 1)
        name = "prompt 2W" if self.patient.window and beyond_edge == 2 * edge else f"prompt of {beyond_edge}"
        beyond = self._simple(name, beyond_edge)
        if causal:
            if beyond is not None and beyond.crash is None:
                self._scored(beyond.tokens, name)
            self._second_turn()
        _ = self.batch
        window = self.patient.window
        if window is not None and window != self.patient.reduced_window and window <= LONGEST_TRUE_WINDOW:
            self._simple("true window", window - BEFORE_EDGE, TRUE_WINDOW_STEPS, true_window=True)

    def asked(self, prompt: int) -> int:
        """New tokens for the long generation: across the edge by the margin, what the user allows, what fits."""
        wanted = self.settings.max_new_tokens or max(self.edge - prompt, 0) + self.settings.margin
        return wanted if self._positions is None else max(min(wanted, self._positions - prompt), 1)

    @cached_property
    def crossing(self) -> Crossing:
        """From below the edge to `margin` tokens after it, and the reference route over the same tokens."""
        user = self.text.user
        length = max(2, self.edge - BEFORE_EDGE)
        if self._positions is not None:
            length = min(length, self._positions - 1)
        ids = self._prompt(length) if user is None else user[None].to(self.patient.device)
        prompt = ids.shape[1]
        asked = self.asked(prompt)
        self.progress(f"long generate: {prompt} tokens, then {asked} more")
        recorder = Recorder(_all_real(ids), _around(self.edge))
        started = time.perf_counter()
        streamer = Heartbeat(asked, self.progress)
        run = runs.generate(self.patient.reduced, ids, asked, recorder=recorder, streamer=streamer)
        self.timing["generate"] = time.perf_counter() - started
        self.timing["tokens_per_second"] = (run.tokens.shape[1] - prompt) / self.timing["generate"]
        memory = peak_memory_mb(self.patient.device)
        if memory is not None:
            self.timing["peak_memory_mb"] = memory
        reference, why_not = None, ""
        if run.crash is None:
            try:
                reference = self.reference(run.tokens, asked + 1)
            except CouldNotLook as error:
                why_not = str(error)
        return Crossing(self._finished("long generate", run, prompt), run, reference, why_not)

    def reference(self, tokens: torch.Tensor, last: int, **more: Any) -> Reference:
        """The reference route over `tokens`, shape (1, T); see `runs.reference`."""
        model = self.patient.reduced
        return runs.reference(self._exact, model, tokens, last, shares_kv=self.facts.shares_kv, **more)

    @cached_property
    def _exact(self) -> Any:
        return runs.float32_copy(self.patient.reduced)

    @cached_property
    def batch(self) -> Batch:
        """Rows of unequal length in one batch, padded as the subject would pad them."""
        wanted = (self.edge + STEPS, self.edge - 3, self.edge // 2 + 1)
        longest = max(wanted) if self._positions is None else max(self._positions - STEPS, 1)
        lengths = [min(length, longest) for length in wanted if length > 0]
        rows = tuple(self._prompt(length, offset=17 * index)[0] for index, length in enumerate(lengths))
        columns = max(lengths)
        ids = torch.full((len(rows), columns), self.patient.pad_token_id, dtype=torch.long, device=self.patient.device)
        mask = torch.zeros_like(ids)
        for index, row in enumerate(rows):
            where = slice(columns - len(row), None) if self.patient.padding_side == "left" else slice(0, len(row))
            ids[index, where] = row
            mask[index, where] = 1
        real: Bools = mask.bool().cpu().numpy()
        self.progress("padded batch")
        recorder = Recorder(real, self._some_rows)
        run = self._run(self.patient.reduced, ids, STEPS, recorder, mask)
        return Batch(self._finished("padded batch", run, columns, padded=True), run, rows, real)

    def _simple(self, name: str, length: int, steps: int = STEPS, true_window: bool = False) -> Run | None:
        """A prompt of exactly `length` tokens, alone, and a few decode steps. Lengths the model lacks are left out."""
        if name in self.done or length < 1 or not self._fits(length + steps):
            return None
        self.progress(f"{name}: {length:,} tokens")
        ids = self._prompt(length)
        model = self.patient.model if true_window else self.patient.reduced
        window = self.patient.window if true_window else self.patient.reduced_window
        # a skeleton's prefill at the true window would be read at a cost of many seconds
        wanted = _around(window) if true_window and window else _decode_steps
        run = self._run(model, ids, steps, Recorder(_all_real(ids), wanted), torch.ones_like(ids))
        self._finished(name, run, length, window=window)
        return run

    def _scored(self, tokens: torch.Tensor, same_as: str) -> None:
        """One forward over the tokens of another pass, shape (1, T), as a text is scored."""
        name = same_as.replace("prompt", "scored")
        if name in self.done:
            return
        self.progress(f"{name}: {tokens.shape[1]:,} tokens")
        recorder = Recorder(_all_real(tokens), self._some_rows)
        mask, use_cache = torch.ones_like(tokens), self.facts.shares_kv
        run = runs.forward(self.patient.reduced, tokens, mask, recorder, use_cache=use_cache, last=STEPS)
        self._finished(name, run, tokens.shape[1], same_tokens_as=same_as)

    def _second_turn(self) -> None:
        """Generate, then hand the returned cache back with more tokens, which cross the edge in one forward."""
        if "second turn" in self.done:
            return
        length = max(1, self.edge - SECOND_TURN_TOKENS + 2)
        if not self._fits(length + SECOND_TURN_TOKENS + 2 * STEPS):
            return
        self.progress("second turn")
        first = self._prompt(length)
        recorder = Recorder(_all_real(first), _decode_steps)
        model = self.patient.reduced
        run = runs.generate(model, first, STEPS, recorder=recorder)
        if run.crash is None:
            ids = torch.cat([run.tokens, self._prompt(SECOND_TURN_TOKENS, offset=500)], dim=1)
            run = runs.generate(model, ids, STEPS, recorder=recorder, cache=run.cache)
        self._finished("second turn", run, first.shape[1])

    def _fits(self, length: int) -> bool:
        return self._positions is None or length <= self._positions

    def _run(self, model: Any, ids: torch.Tensor, steps: int, recorder: Recorder, mask: torch.Tensor) -> Run:
        """Generate; a model that does not generate makes one forward instead."""
        if self.facts.causal:
            return runs.generate(model, ids, steps, recorder=recorder, attention_mask=mask)
        return runs.forward(model, ids, mask, recorder)

    def _finished(self, name: str, run: Run, prompt: int, **changes: Any) -> Pass:
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

    def _some_rows(self, start: int, total: int) -> tuple[int, ...]:
        """Of a prefill the first rows, those around the edge, and the last; later all."""
        if start:
            return tuple(range(start, total))
        edge = self.edge
        some = {0, 1, edge // 2, edge - 2, edge - 1, edge, edge + 1, 3 * edge // 2, *range(total - STEPS, total)}
        return tuple(sorted(row for row in some if 0 <= row < total))

    def _edge_name(self, delta: int) -> str:
        if self.patient.reduced_window is None:
            return f"prompt of {self.edge + delta}"
        return "prompt W" + (f"{delta:+d}" if delta else "")


def _decode_steps(start: int, total: int) -> range:
    """The queries of everything that is fed to a cache."""
    return range(start, total) if start else range(0)


def _around(edge: int) -> Wanted:
    """The decode steps that end next to total length `edge`, and every 16th."""

    def wanted(start: int, total: int) -> range:
        near = edge - 1 <= total <= edge + 2 or total % EVERY == 0
        return range(start, total) if start and near else range(0)

    return wanted


def _all_real(ids: torch.Tensor) -> Bools:
    """The attention mask of prompts without pads."""
    return np.ones(tuple(ids.shape), dtype=bool)


def peak_memory_mb(device: str) -> float | None:
    """Peak memory so far: of the GPU if the model is there, else of the process; None where nobody counts it."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device) / 2**20
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
