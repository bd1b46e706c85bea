"""Makes evidence on demand, each thing once: which passes are run, and what comes out of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gemma_doctor import evidence
from gemma_doctor.capture import model_facts, runs
from gemma_doctor.capture.recorder import Recorder
from gemma_doctor.capture.runs import Heartbeat, Reference, Run
from gemma_doctor.capture.tokens import Tokens
from gemma_doctor.check import CouldNotLook, NotApplicable
from gemma_doctor.evidence import Bools, Generation, LayerRotation, PaddedBatch, Pass, TokenizerFacts, Trace, frozen
from gemma_doctor.loading import Patient
from gemma_doctor.settings import Settings

# Lengths are taken around the window edge; a model without a window is walked across this many tokens instead.
EDGE_WITHOUT_WINDOW = 64
BEFORE_EDGE = 8
STEPS = 4
TRUE_WINDOW_STEPS = 16
NOT_CAUSAL = "bidirectional: it does not generate"


class Collector:
    """Evidence of one patient.

    Args:
        progress: called with one line before anything that takes a while.

    Attributes:
        timing: seconds and rates by name.
    """

    def __init__(self, patient: Patient, settings: Settings, progress: Callable[[str], None]) -> None:
        self.patient = patient
        self.settings = settings
        self.progress = progress
        self.timing: dict[str, float] = {}
        self.text = Tokens(patient, settings.prompt, settings.seed)
        self._rotations: dict[int, LayerRotation] = {}
        self._refused: dict[type, NotApplicable | CouldNotLook] = {}
        self._makers: dict[type, Callable[[], Any]] = {
            evidence.Config: lambda: patient.subject.config,
            evidence.ModelFacts: lambda: self.facts,
            TokenizerFacts: lambda: self.tokenizer,
            Trace: lambda: self.trace,
            PaddedBatch: lambda: self.padded_batch,
            Generation: lambda: self.generation,
        }

    def get(self, kind: type) -> Any:
        """Evidence of one type.

        Raises:
            NotApplicable: the subject has no such thing.
            CouldNotLook: it has, and it could not be looked at.
        """
        if kind in self._refused:
            raise self._refused[kind]
        started = time.perf_counter()
        try:
            return self._makers[kind]()
        except (NotApplicable, CouldNotLook) as error:
            self._refused[kind] = error
            raise
        finally:
            name = f"seconds_{kind.__name__.lower()}"
            self.timing[name] = self.timing.get(name, 0.0) + time.perf_counter() - started

    def lengths(self) -> dict[str, object]:
        """What was run, for the report's headline; empty if nothing was."""
        facts: dict[str, object] = {"window": self.patient.window, "reduced_window": self.patient.reduced_window}
        if "_crossing" in self.__dict__:
            made, run, _, _ = self._crossing
            generated = run.tokens.shape[1] - made.prompt_length
            crossed_at = (made.window or 0) - made.prompt_length
            facts |= {
                "prompt_length": made.prompt_length,
                "prompt_from": self.text.source,
                "generated": generated,
                "crossed_at": max(crossed_at, 0) if made.window and generated > crossed_at else None,
            }
        return facts

    # --- what stands still -------------------------------------------------------------------------------------------

    @cached_property
    def facts(self) -> evidence.ModelFacts:
        return model_facts.model_facts(self.patient)

    @cached_property
    def tokenizer(self) -> TokenizerFacts:
        tokenizer = self.patient.tokenizer
        if tokenizer is None:
            raise NotApplicable("a bare config has no tokenizer")
        return TokenizerFacts(
            class_name=type(tokenizer).__name__,
            padding_side=str(tokenizer.padding_side),
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            vocabulary=len(tokenizer),
        )

    @property
    def _edge(self) -> int:
        return self.patient.reduced_window or EDGE_WITHOUT_WINDOW

    @property
    def _shares_kv(self) -> bool:
        return any(layer.shares_kv_with is not None for layer in self.facts.layers)

    @cached_property
    def _first_of_kind(self) -> frozenset[int]:
        """The first layer of each kind: where keys are told apart."""
        first: dict[str, int] = {}
        for index, kind in sorted(self._kinds.items()):
            first.setdefault(kind, index)
        return frozenset(first.values())

    @cached_property
    def _kinds(self) -> dict[int, str]:
        return {layer.index: layer.kind for layer in self.facts.layers}

    # --- passes ------------------------------------------------------------------------------------------------------

    def _prompt(self, length: int, offset: int = 0) -> torch.Tensor:
        """Shape (1, length), on the patient's device."""
        return self.text.exact(max(1, length), offset)[None].to(self.patient.device)

    def _recorder(self, real: Bools, around: int | None = None) -> Recorder:
        """A recorder; keys are kept for the decode steps around total length `around` if it is given."""
        if around is None:
            return Recorder(real)
        kept = range(around - 1, around + 3)
        return Recorder(real, keep_keys=lambda layer, total: total in kept and layer in self._first_of_kind)

    def _as_pass(self, name: str, run: Run, prompt: int, **more: Any) -> Pass:
        self._rotations = self._rotations or run.recorder.rotations
        window = more.pop("window", self.patient.reduced_window)
        return Pass(
            name=name,
            window=window,
            prompt_length=prompt,
            padded=more.pop("padded", False),
            streamed=more.pop("streamed", False),
            forwards=more.pop("forwards", run.forwards),
            crash=run.crash,
        )

    def _edge_name(self, delta: int) -> str:
        if self.patient.reduced_window is None:
            return f"prompt of {self._edge + delta}"
        return "prompt W" + (f"{delta:+d}" if delta else "")

    def _simple(self, name: str, length: int, steps: int = STEPS, true_window: bool = False) -> Pass:
        """A prompt of exactly `length` tokens, alone, and a few decode steps."""
        model = self.patient.model if true_window else self.patient.reduced
        ids = self._prompt(length)
        recorder = self._recorder(np.ones((1, ids.shape[1]), dtype=bool))
        if self.facts.causal:
            run = runs.generate(model, ids, steps, recorder=recorder)
        else:
            run = runs.forward(model, ids, torch.ones_like(ids), recorder)
        window = self.patient.window if true_window else self.patient.reduced_window
        return self._as_pass(name, run, ids.shape[1], window=window)

    @cached_property
    def _second_turn(self) -> Pass:
        """Generate, then hand the returned cache back with more tokens, which cross the edge in one forward."""
        first = self._prompt(self._edge - 10)
        recorder = self._recorder(np.ones((1, first.shape[1]), dtype=bool))
        run = runs.generate(self.patient.reduced, first, STEPS, recorder=recorder)
        if run.crash is None:
            ids = torch.cat([run.tokens, self._prompt(12, offset=500)], dim=1)
            run = runs.generate(self.patient.reduced, ids, STEPS, recorder=recorder, cache=run.cache)
        return self._as_pass("second turn", run, first.shape[1])

    def _asked(self, prompt: int) -> int:
        """New tokens for the long generation: across the edge by the margin, or what the user allows."""
        return self.settings.max_new_tokens or max(self._edge - prompt, 0) + self.settings.margin

    @cached_property
    def _crossing(self) -> tuple[Pass, Run, Reference | None, str]:
        """The long generation: from below the edge to `margin` tokens after it, and the reference route over it."""
        user = self.text.user
        ids = self._prompt(max(2, self._edge - BEFORE_EDGE)) if user is None else user[None].to(self.patient.device)
        asked = self._asked(ids.shape[1])
        self.progress(f"long generate: {ids.shape[1]} tokens, then {asked} more")
        recorder = self._recorder(np.ones((1, ids.shape[1]), dtype=bool), around=self._edge)
        started = time.perf_counter()
        run = runs.generate(
            self.patient.reduced, ids, asked, recorder=recorder, streamer=Heartbeat(asked, self.progress)
        )
        self.timing["tokens_per_second"] = (run.tokens.shape[1] - ids.shape[1]) / (time.perf_counter() - started)
        self.timing["peak_memory_mb"] = peak_memory_mb(self.patient.device)
        reference, why_not = None, ""
        if run.crash is None:
            try:
                reference = runs.reference(
                    self.patient.reduced,
                    run.tokens,
                    asked + 1,
                    layers=self._first_of_kind,
                    shares_kv=self._shares_kv,
                )
            except CouldNotLook as error:
                why_not = str(error)
        forwards = runs.with_key_positions(run, reference.keys) if reference else run.forwards
        made = self._as_pass("long generate", run, ids.shape[1], streamed=True, forwards=forwards)
        return made, run, reference, why_not

    @cached_property
    def _batch(self) -> tuple[Pass, Run, list[torch.Tensor], Bools]:
        """Rows of unequal length in one batch, padded as the subject would pad them."""
        edge = self._edge
        rows = [self._prompt(n, offset=17 * i)[0] for i, n in enumerate((edge + 4, max(edge - 3, 1), edge // 2 + 1))]
        columns = max(len(row) for row in rows)
        pad = self.patient.tokenizer.pad_token_id if self.patient.tokenizer is not None else 0
        ids = torch.full((len(rows), columns), pad or 0, dtype=torch.long, device=self.patient.device)
        mask = torch.zeros_like(ids)
        for index, row in enumerate(rows):
            where = slice(columns - len(row), None) if self.patient.padding_side == "left" else slice(0, len(row))
            ids[index, where] = row
            mask[index, where] = 1
        real: Bools = mask.bool().cpu().numpy()
        recorder = self._recorder(real)
        if self.facts.causal:
            run = runs.generate(self.patient.reduced, ids, STEPS, recorder=recorder, attention_mask=mask)
        else:
            run = runs.forward(self.patient.reduced, ids, mask, recorder)
        return self._as_pass("padded batch", run, columns, padded=True), run, rows, real

    # --- evidence from passes ----------------------------------------------------------------------------------------

    @cached_property
    def trace(self) -> Trace:
        passes: list[Pass] = []
        if self.facts.causal:
            passes.append(self._crossing[0])
            if self.text.user is not None:
                passes.append(self._simple(self._edge_name(-BEFORE_EDGE), self._edge - BEFORE_EDGE, TRUE_WINDOW_STEPS))
        for delta in (-1, 0, 1):
            self.progress(self._edge_name(delta))
            passes.append(self._simple(self._edge_name(delta), self._edge + delta))
        self.progress("beyond the window")
        passes.append(self._simple("prompt 2W" if self.patient.window else "long prompt", 2 * self._edge))
        if self.facts.causal:
            self.progress("second turn")
            passes.append(self._second_turn)
        self.progress("padded batch")
        passes.append(self._batch[0])
        if self.patient.window != self.patient.reduced_window:
            assert self.patient.window is not None
            self.progress(f"crossing the true window of {self.patient.window:,}")
            passes.append(
                self._simple("true window", self.patient.window - BEFORE_EDGE, TRUE_WINDOW_STEPS, true_window=True)
            )
        return Trace(
            passes=tuple(passes),
            rotations=tuple(rotation for _, rotation in sorted(self._rotations.items())),
            device=self.patient.device,
            layer_kinds=self._kinds,
            shares_kv_with={
                layer.index: layer.shares_kv_with for layer in self.facts.layers if layer.shares_kv_with is not None
            },
            causal=self.facts.causal,
        )

    @cached_property
    def padded_batch(self) -> PaddedBatch:
        if not self.facts.causal:
            raise NotApplicable(NOT_CAUSAL)
        made, run, rows, real = self._batch
        if run.crash:
            raise CouldNotLook(f"the padded batch crashed: {run.crash.kind}: {run.crash.message}")
        together = run.logits[0].float()
        alone, floors = [], []
        for row in rows:
            reference = runs.reference(
                self.patient.reduced, row[None], 1, shares_kv=self._shares_kv, backend=self.patient.backend
            )
            alone.append(reference.logits[-1])
            floors.append(reference.floor)
        floor = max(floors)
        deviation = [float((one - other).abs().max()) for one, other in zip(together, alone, strict=True)]
        flips = [_flips(one, other, floor) for one, other in zip(together, alone, strict=True)]
        return PaddedBatch(
            pass_name=made.name,
            side=self.patient.padding_side,
            side_from="this tool (no tokenizer)" if self.patient.tokenizer is None else "tokenizer",
            real=frozen(real),
            deviation=frozen(np.array(deviation)),
            flips=frozen(np.array(flips)),
            floor=floor,
        )

    @cached_property
    def generation(self) -> Generation:
        if not self.facts.causal:
            raise NotApplicable(NOT_CAUSAL)
        made, run, reference, why_not = self._crossing
        prompt = made.prompt_length
        tokens = run.tokens[0, prompt:]
        if reference is None and run.crash is None:
            raise CouldNotLook(why_not)
        top, clear = tokens, torch.zeros_like(tokens, dtype=torch.bool)
        if reference is not None:
            best = reference.logits[:-1].topk(1).indices[:, 0]
            chosen = reference.logits[:-1].gather(1, tokens[:, None])[:, 0]
            top, clear = best, reference.logits[:-1].max(dim=1).values - chosen > 2 * reference.floor
        return Generation(
            window=self.patient.reduced_window,
            prompt_length=prompt,
            asked=self._asked(prompt),
            margin=self.settings.margin,
            tokens=frozen(tokens.cpu().numpy()),
            reference=frozen(top.cpu().numpy()),
            clear=frozen(clear.cpu().numpy()),
            crash=run.crash,
            pass_name=made.name,
            prompt_from=self.text.source,
        )


def _flips(together: torch.Tensor, alone: torch.Tensor, floor: float) -> bool:
    """The top tokens differ, and the reference tells them apart clearly."""
    return bool(alone.max() - alone[together.argmax()] > 2 * floor)


def peak_memory_mb(device: str) -> float:
    """Peak memory so far: of the GPU if the model is there, else of the process."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device) / 2**20
    if sys.platform == "win32":
        return float("nan")
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
