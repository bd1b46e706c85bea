"""Makes evidence on demand, each thing once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from gemma_doctor import compat, evidence, loading
from gemma_doctor.advisories import concerning
from gemma_doctor.capture import (
    device,
    drift,
    estimate,
    flash,
    generations,
    gguf,
    good_run,
    kernels,
    ledger,
    model_facts,
    tokenizer,
    tokenizer_texts,
    tokenizer_words,
)
from gemma_doctor.capture.lengths import lengths
from gemma_doctor.capture.long_text import long_text
from gemma_doctor.capture.passes import STEPS, Passes
from gemma_doctor.capture.rope_effect import rope_effect
from gemma_doctor.capture.rotary_range import rotary_range
from gemma_doctor.capture.routes import NOT_CAUSAL, Routes
from gemma_doctor.check import CouldNotLook, NotApplicable
from gemma_doctor.evidence import (
    LONG_GENERATE,
    LONG_TEXT,
    Generations,
    Ints,
    LayerRotation,
    ModelFacts,
    PaddedBatch,
    Pass,
    RouteRun,
    TokenizerFacts,
    Trace,
    frozen,
)
from gemma_doctor.facts import version_of
from gemma_doctor.loading import Patient
from gemma_doctor.oracle import FLIP_FLOORS
from gemma_doctor.settings import Progress, Settings

# What is made of prompts around the window's edge.
AROUND_THE_EDGE = (Trace, PaddedBatch, Generations, evidence.KernelProfile)


class Collector:
    """Evidence of one patient.

    Args:
        patient: who is examined.
        settings: of the run.
        progress: called with one line before anything that takes a while.
        brief: fewer passes, and less of each finding (see `Passes` and `Routes`).

    Attributes:
        patient: as given.
        facts: its configuration and modules.
        passes: what was run on it.
        ledger: everything that ran, and what it took.
    """

    def __init__(self, patient: Patient, settings: Settings, progress: Progress, brief: bool = False) -> None:
        self.patient = patient
        self._settings, self._progress, self._brief = settings, progress, brief
        self._seconds: dict[type, float] = {}
        self._made: dict[tuple[type, str], Any] = {}
        self._refused: dict[tuple[type, str], NotApplicable | CouldNotLook] = {}
        self._closed = ""
        self._side_before = None if patient.tokenizer is None else str(patient.tokenizer.padding_side)
        self.ledger = ledger.Ledger()
        self.facts = model_facts.model_facts(patient)
        self.passes = Passes(patient, self.facts, settings, progress, brief)
        self.routes = Routes(patient, self.passes, settings, brief=brief)
        self._makers: dict[type, Callable[[], Any]] = {
            evidence.Config: lambda: patient.subject.config,
            evidence.ConfigDrift: lambda: drift.config_drift(patient),
            evidence.GgufFacts: lambda: gguf.gguf_facts(patient.gguf),
            evidence.Lengths: lambda: lengths(patient, self.passes.text, settings),
            evidence.ModelFacts: lambda: self.facts,
            evidence.RopeEffect: lambda: rope_effect(patient, self.facts, self.passes.text, progress),
            evidence.RotaryRange: lambda: rotary_range(patient, self.facts.loaded),
            TokenizerFacts: lambda: tokenizer.tokenizer_facts(patient),
            evidence.BosUse: lambda: tokenizer.bos_use(patient),
            evidence.Truncation: lambda: tokenizer_texts.truncation(patient, self.passes, settings),
            evidence.TokenizerIntegrity: lambda: tokenizer_words.integrity(patient),
            evidence.PaddedTexts: lambda: tokenizer_texts.padded_texts(patient),
            evidence.StopTokens: lambda: tokenizer_texts.stop_tokens(patient),
            Trace: lambda: self.trace,
            PaddedBatch: self._padded_batch,
            Generations: self._generations,
            evidence.LongText: self._long_text,
            evidence.KernelProfile: self._kernel_profile,
            evidence.DeviceMemory: lambda: device.device_memory(patient),
            evidence.FlashWindow: lambda: flash.flash_window(
                patient, self.facts.causal, "flash-attention" in self.routes.declared
            ),
            evidence.Advisories: self._advisories,
            evidence.GoodRun: lambda: good_run.good_run(self, settings),
        }

    def get(self, kind: type, of: str = "") -> Any:
        """Evidence of one type; `of` says which route's, where it is a RouteRun.

        Raises:
            NotApplicable: the subject has no such thing.
            CouldNotLook: it has, and it could not be looked at.
        """
        if (kind, of) in self._refused:
            raise self._refused[kind, of]
        if (kind, of) in self._made:
            return self._made[kind, of]
        started = time.perf_counter()
        try:
            if self.passes.unbearable and (kind in AROUND_THE_EDGE or of in self.routes.declared):
                raise CouldNotLook(self.passes.unbearable)
            with self.ledger.open(ledger.in_words(kind)):
                made = self._route(of) if kind is RouteRun else self._makers[kind]()
            if not self._closed:  # a trace that was ended early is not all there is
                self._made[kind, of] = made
            return made
        except (NotApplicable, CouldNotLook) as error:
            self._refused[kind, of] = error
            raise
        finally:
            self._seconds[kind] = self._seconds.get(kind, 0.0) + time.perf_counter() - started

    def close(self, reason: str) -> None:
        """Run nothing any more: what is known by now is all there will be."""
        self._closed = reason

    def timing(self) -> dict[str, Any]:
        """Seconds by phase, tokens per second and peak memory of the long generation."""
        rates: dict[str, Any] = dict(self.passes.timing)
        generate = rates.pop("generate", 0.0)
        phases = {
            "generate": generate,
            "other passes": self._seconds.get(Trace, 0.0) - generate,
            "rows alone": self._seconds.get(PaddedBatch, 0.0),
            "profiling": self._seconds.get(evidence.KernelProfile, 0.0),
            LONG_TEXT: self._seconds.get(evidence.LongText, 0.0),
            "routes": self._seconds.get(RouteRun, 0.0),
        }
        if (evidence.KernelProfile, "") in self._made:
            rates["attention_backend"] = kernels.timing(self._made[evidence.KernelProfile, ""])
        rates["passes"] = {name: one.seconds for name, one in self.ledger.ran.items()}
        return {**rates, "phases": {name: spent for name, spent in phases.items() if spent > 0}}

    def lengths(self) -> dict[str, object]:
        """What was run, for the report's headline."""
        ran = [{"name": name, "forwards": one.forwards, "tokens": one.tokens} for name, one in self.ledger.ran.items()]
        rest: dict[str, object] = {"ran": ran} if ran else {}
        text: evidence.LongText | None = self._made.get((evidence.LongText, ""))
        if text is not None:
            rest["long_text"] = {"length": text.length, "from": text.source}
        if not self.passes.done:
            return rest
        facts: dict[str, object] = {
            "routes_in_use": sorted(self.routes.declared),
            "depth": self._settings.depth,
            "window": self.patient.window,
            "reduced_window": self.patient.reduced_window,
            "true_window_crossed": self.patient.window == self.patient.reduced_window
            or "true window" in self.passes.done,
        }
        if not facts["true_window_crossed"]:
            facts["true_window_left_out"] = "" if self._brief else "W is too long for a skeleton"
        return facts | self.passes.continuations.facts() | rest

    @cached_property
    def trace(self) -> Trace:
        """All passes; after `close` those that were finished."""
        if not self._closed:
            self._announce()
            self.passes.run_all()
        elif not self.passes.done:
            raise CouldNotLook(self._closed)
        passes = tuple(self.passes.done.values())
        trace = _trace(self.facts, self.patient.device, passes, self.passes.rotations, self.passes.unreadable)
        return replace(trace, quantised=compat.is_quantised(self.patient.reduced))

    def _route(self, name: str) -> RouteRun:
        if self._closed:
            raise CouldNotLook(self._closed)
        routes = self._routes_with(name)
        on_it = nullcontext() if routes is self.routes else ledger.elsewhere("on a skeleton")
        with routes.threads(), on_it, ledger.entry(f"route {name}"):
            return routes.run(name)

    def _routes_with(self, name: str) -> Routes:
        """The subject's own for "": what is no route runs on it."""
        return self.routes if name in ("", *self.routes.declared) else self._unused_routes

    @cached_property
    def _unused_routes(self) -> Routes:
        """Routes that are not in use: what breaks there is code, which a skeleton runs as real weights do."""
        other = loading.stand_in(self.patient, self._settings) if self.patient.subject.weights == "real" else None
        if other is None:
            return self.routes
        self._progress("routes that are not in use: on a skeleton")
        settings = replace(self._settings, prompts=())
        passes = Passes(other, model_facts.model_facts(other), settings, lambda line: None)
        return Routes(other, passes, settings, stand_in=True)

    def reference_of(self, route: str) -> tuple[ModelFacts, Trace] | None:
        """The model whose reference route a route was held against, and what that did; None if it was not run."""
        passes = self._routes_with(route).passes
        if passes.references.first is None:
            return None
        one, rotations = passes.references.first
        return passes.facts, _trace(passes.facts, passes.patient.device, (one,), rotations)

    def _announce(self) -> None:
        """Say what will be run and roughly how long it takes."""
        edge = self.passes.edge
        # in window widths: the crossing and its reference 2, W-1, W and W+1 3, beyond 2, scored 2, second turn 1, batch
        # and rows alone 5; decode steps: the crossing, and a few in each of seven other passes
        more_prefill, more_decode = self.passes.continuations.beside_the_long
        prefill, decode = 15 * edge + more_prefill, self.passes.asked(edge) + 7 * STEPS + more_decode
        spent = estimate.seconds(self.patient, prefill, decode)
        about = "a few seconds" if spent is None else f"about {spent:.0f} s"
        if spent is None and self.patient.subject.weights == "real" and self.patient.device == "cpu":
            about = "many minutes: half precision is slow on a CPU"
        more = "; then every route on these weights, many times as long" if self._settings.depth == "deep" else ""
        self._progress(f"running: about {prefill:,} tokens of prompts and {decode} decode steps, {about}{more}")

    def _padded_batch(self) -> PaddedBatch:
        if not self.facts.causal:
            raise NotApplicable(NOT_CAUSAL)
        if self._closed:
            raise CouldNotLook(self._closed)
        batch = self.passes.batch
        if batch.run.crash:
            raise CouldNotLook(f"the padded batch crashed: {batch.run.crash.kind}: {batch.run.crash.message}")
        real, logits = batch.real, batch.run.logits
        if self.patient.padding_side == "right":
            real, logits = self.passes.right_padded()
        together = logits[0].float()
        alone = [self.passes.references.over(row[None], STEPS + 1) for row in batch.written]
        floor = max(one.floor for one in alone)
        if self.patient.dtype != "float32" and compat.has_experts(self.patient.model):
            floor = float("inf")  # rounding lets rows choose other experts: no difference proves anything
        pairs = [(row, one.logits[0]) for row, one in zip(together, alone, strict=True)]
        return PaddedBatch(
            pass_name=batch.recorded.name,
            side=self.patient.padding_side,
            side_from="this tool (no tokenizer)" if self.patient.tokenizer is None else "tokenizer",
            real=frozen(real),
            positions=_positions(batch.recorded, batch.real.shape),
            positions_of=frozen(batch.real),
            side_before=self._side_before,
            side_after=None if self.patient.tokenizer is None else str(self.patient.tokenizer.padding_side),
            deviation=frozen(np.array([float((row - one).abs().max()) for row, one in pairs])),
            # another token comes first, and the row alone tells the two apart clearly
            flips=frozen(np.array([bool(one.max() - one[row.argmax()] > FLIP_FLOORS * floor) for row, one in pairs])),
            floor=floor,
        )

    def _advisories(self) -> evidence.Advisories:
        return concerning(
            version_of("transformers"),
            self.patient.subject.config,
            self.facts,
            self.routes.declared,
            backend=self.patient.backend,
            dtype=self.patient.dtype,
            device=self.patient.device,
        )

    def _kernel_profile(self) -> evidence.KernelProfile:
        if self._closed:
            raise CouldNotLook(self._closed)
        return kernels.kernel_profile(self.patient, self.passes)

    def _long_text(self) -> evidence.LongText:
        if self._closed:
            raise CouldNotLook(self._closed)
        return long_text(self.passes)

    def _generations(self) -> Generations:
        if not self.facts.causal:
            raise NotApplicable(NOT_CAUSAL)
        if self._closed and LONG_GENERATE not in self.passes.done:
            raise CouldNotLook(self._closed)
        return generations.generations(self.passes)


def _positions(batch: Pass, shape: tuple[int, ...]) -> Ints | None:
    """Positions of a batch's prompt, if it was fed in one forward."""
    prefill = batch.forwards[0] if batch.forwards else None
    if prefill is None or prefill.positions is None or prefill.fed != shape[1]:
        return None
    return frozen(np.broadcast_to(prefill.positions, shape))


def _trace(
    facts: ModelFacts, device: str, passes: tuple[Pass, ...], rotations: dict[int, LayerRotation], unreadable: str = ""
) -> Trace:
    return Trace(
        passes=passes,
        rotations=tuple(rotation for _, rotation in sorted(rotations.items())),
        device=device,
        layer_kinds={layer.index: layer.kind for layer in facts.layers},
        shares_kv_with={
            layer.index: layer.shares_kv_with for layer in facts.layers if layer.shares_kv_with is not None
        },
        causal=facts.causal,
        unreadable=unreadable,
    )
