"""A whole heatmap run: resolve the subject, find the text, read the rows, say what they mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from gemma_doctor import __version__, compat
from gemma_doctor.capture.influence import influence
from gemma_doctor.capture.model_facts import model_facts
from gemma_doctor.capture.rows import Text, read_decode_steps, read_prefill
from gemma_doctor.capture.runs import Run
from gemma_doctor.capture.tokens import Tokens
from gemma_doctor.charts.chart import Chart, Panel, shares
from gemma_doctor.charts.placing import placed
from gemma_doctor.check import CouldNotLook
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import (
    SLIDING,
    Bools,
    Floats32,
    Forward,
    Ints,
    KernelCall,
    ModelFacts,
)
from gemma_doctor.facts import version_of
from gemma_doctor.finding import counted
from gemma_doctor.loading import Patient, admit
from gemma_doctor.oracle import visible
from gemma_doctor.settings import Progress, Settings
from gemma_doctor.subject import resolve
from gemma_doctor.view import View, heads, layers, positions

# Without a prompt: so many windows of text (tokens, without a window), so that the last token lies well beyond one.
WINDOWS, TOKENS = 2, 128
# Rows x keys x heads x layers that are kept as float32: 400 MB.
MOST_WEIGHTS = 100_000_000


def heatmap(settings: Settings, view: View, progress: Progress) -> Chart:
    """Read what the rows of one text read.

    Args:
        settings: subject, weights, prompt and the like, as for an examination.
        view: what to show.
        progress: called with one line of text now and then.

    Raises:
        DoctorError: the subject, a position, layer or head is not there; or the model fails on the text.
    """
    patient = admit(resolve(settings), settings, progress)
    facts = model_facts(patient)
    if not facts.causal:
        raise DoctorError(f"{patient.subject.name} reads in both directions", "a heatmap shows what decoders read")
    with patient.threads():
        try:
            return _Heatmap(patient, facts, settings, view, progress).chart()
        except CouldNotLook as error:
            raise DoctorError(f"{patient.subject.name}: {error}", "gemma-doctor check says what is wrong") from error


ROWS = {
    "decode": "decode steps (what generation uses; --rows-at prefill shows what prompts read)",
    "prefill": "prefill (what scoring uses)",
    "influence": "gradient of the top logit at the embedding's output",
}


class _Heatmap:
    """One text, and what its rows read."""

    def __init__(self, patient: Patient, facts: ModelFacts, settings: Settings, view: View, progress: Progress) -> None:
        self.patient, self.facts, self.settings, self.view, self.progress = patient, facts, settings, view, progress
        self.kinds = [layer.kind for layer in facts.layers]
        self.layers = layers(view.layers, self.kinds)
        self.tokens = Tokens(patient, settings.prompts[:1], settings.seed)
        self.limit = facts.loaded.max_positions
        self.prompt = len(self.tokens.user) if self.tokens.user is not None else 0
        self.rows = positions(view.pos, self.prompt or self._usual_length(), self.limit)
        self.text = self._text()
        several = len(settings.prompts) > 1
        self.notes = [f"of {len(settings.prompts)} prompts the first is shown"] if several else []
        for layer in self.layers:
            heads(view.heads, facts.layers[layer].query_heads)  # refuses what is not there before anything runs

    def _usual_length(self) -> int:
        length = WINDOWS * self.patient.window if self.patient.window else TOKENS
        return min(length, self.limit) if self.limit else length

    def _text(self) -> Text:
        count = sum(self.facts.layers[layer].query_heads for layer in self.layers)
        count = 1 if self.view.kind == "influence" else count
        columns = self.rows.stop + self.view.pads
        if self.limit is not None and columns > self.limit:
            raise DoctorError(
                f"--pads {self.view.pads}: the model has {self.limit:,} positions, {self.rows.stop:,} are tokens",
                f"at most {max(self.limit - self.rows.stop, 0):,} here",
            )
        if len(self.rows) * columns * count > MOST_WEIGHTS:
            raise DoctorError(
                f"--pos {self.view.pos}: {len(self.rows):,} rows of {columns:,} keys are too many",
                "fewer rows, or fewer layers (--layers)",
            )
        ids = self.tokens.exact(self.rows.stop)
        pads = torch.full((self.view.pads,), self.patient.pad_token_id)
        return Text(torch.cat([pads, ids])[None].to(self.patient.device), len(pads))

    # --- the chart ---------------------------------------------------------------------------------------------------

    def chart(self) -> Chart:
        panels = (self._stack(),) if self.view.kind == "influence" else tuple(self._panels())
        if not panels:
            raise CouldNotLook("no row of these layers could be read")
        return Chart(
            kind=self.view.kind,
            subject=self.patient.subject.name,
            headline=self._headline(),
            facts=self._facts(),
            notes=(*self.patient.subject.remarks, *dict.fromkeys(self.notes)),
            queries=np.array(self.rows),
            keys=self.keys,
            tokens=self._token_texts(),
            panels=panels,
            scale=self.view.scale,
        )

    @property
    def keys(self) -> Ints:
        return np.arange(-self.text.pads, self.rows.stop)

    def _headline(self) -> str:
        patient, published = self.patient, self.patient.subject.config.published
        weights = "real weights" if patient.subject.weights == "real" else f"SKELETON ({patient.cut})"
        parts = (published.family, f"{len(self.kinds)} layers", weights, patient.dtype, patient.backend, patient.device)
        return ", ".join(parts)

    def _facts(self) -> dict[str, str]:
        filled = self.rows.stop - self.prompt
        source = self.tokens.user_source if self.prompt >= self.rows.stop else self.tokens.source
        if self.prompt and filled > 0:
            source = f"{self.tokens.user_source} ({self.prompt} tokens), filled with {self.tokens.source}"
        rows = ROWS["influence" if self.view.kind == "influence" else self.view.rows_at]
        return {
            "gemma-doctor": __version__,
            "transformers": compat.release(),
            "torch": str(version_of("torch")),
            "seed": str(self.settings.seed),
            "text": f"{self.rows.stop:,} tokens: {source}",
            "rows": rows,
        }

    def _token_texts(self) -> tuple[str, ...]:
        ids, tokenizer = self.text.ids[0].tolist(), self.patient.tokenizer
        if tokenizer is None or not self.patient.encodes:
            return ("",) * len(ids)
        return tuple(tokenizer.batch_decode([[one] for one in ids]))

    # --- attention and masks -----------------------------------------------------------------------------------------

    def _panels(self) -> Iterator[Panel]:
        run = self._run()
        by_layer: dict[int, list[tuple[Forward, KernelCall]]] = {layer: [] for layer in self.layers}
        for forward in run.forwards:
            for call in forward.calls:
                if call.reading is not None:
                    by_layer[call.layer].append((forward, call))
        for layer, calls in by_layer.items():
            if calls:
                yield self._panel(layer, calls)
            else:
                self.notes.append(f"layer {layer} computes none of these rows, or they could not be read")

    def _run(self) -> Run:
        first, wanted = self.rows.start + self.text.pads, frozenset(self.layers)
        self.progress(f"reading {len(self.rows)} of {self.rows.stop:,} positions in {len(wanted)} layers")
        masks = self.view.kind == "mask"
        if self.view.rows_at == "prefill":
            use_cache = self.facts.shares_kv
            run = read_prefill(self.patient, self.text, first, wanted, masks=masks, use_cache=use_cache)
        else:
            run = read_decode_steps(self.patient, self.text, first, wanted, masks=masks)
            if not self.rows.start:
                self.notes.append("position 0 has no decode step: it was read as a prompt of one token")
        if run.crash:
            raise CouldNotLook(f"{run.crash.kind} after {run.crash.total:,} tokens: {run.crash.message}")
        steps = run.forwards[-1].total - self.text.ids.shape[1] if run.forwards else -1
        if steps < 0:
            raise CouldNotLook(f"the library ended {-steps} tokens before the last of the text")
        if run.recorder.unreadable:
            self.notes.append(f"not all could be read: {run.recorder.unreadable}")
        return run

    def _panel(self, layer: int, calls: Sequence[tuple[Forward, KernelCall]]) -> Panel:
        facts, masks = self.facts.layers[layer], self.view.kind == "mask"
        found = placed(calls, facts.query_heads, self.rows, self.text.pads, masks=masks)
        self.notes += found.notes
        read: Bools = ~np.isnan(found.sums[0])
        if not read.all():
            self.notes.append(f"layer {layer}: {counted(int((~read).sum()), 'row')} could not be read")
        allowed = self._allowed(layer) & read[:, None]
        where = None
        if not masks:
            # a weight rounded to bfloat16 is off by 0.4 % at most, and so is their sum
            rounding = 1e-4 if self.patient.dtype == "float32" else 1e-2
            rows, sums = np.array(self.rows)[read], found.sums[:, read]
            where = shares(found.values[:, read], allowed[read], rows, self.keys, sums=sums, rounding=rounding)
            if where.has_sink:
                self.notes.append("rows that sum below 1: the kernel has a sink of its own")
        labels, shown = _reduced(found.values, self.view)
        return Panel(
            layer=layer,
            kind=facts.kind,
            window=self._window(layer),
            heads=labels,
            values=shown,
            allowed=allowed,
            shares=where,
            misplaced=found.misplaced,
        )

    def _window(self, layer: int) -> int | None:
        return self.patient.window if self.kinds[layer] == SLIDING else None

    def _allowed(self, layer: int) -> Bools:
        rows, columns = np.array(self.rows)[:, None] + self.text.pads, np.arange(len(self.keys))
        allowed: Bools = visible(self._window(layer), self.text.real[0])(rows, columns[None, :])
        return allowed

    # --- influence ---------------------------------------------------------------------------------------------------

    def _stack(self) -> Panel:
        rows = range(self.rows.start + self.text.pads, self.rows.stop + self.text.pads)
        self.progress(f"the derivative of {len(rows)} logits at {self.rows.stop:,} tokens")
        norms = influence(self.patient.model, self.text.ids, self.text.mask, rows, self.facts.shares_kv)
        if compat.has_per_layer_embeddings(self.patient.model):
            self.notes.append("the path through per-layer embeddings is left out")
        reach = np.array([self._first_reached(row) for row in self.rows])
        queries = np.array(self.rows)[:, None]
        largest = norms.max(axis=1, keepdims=True)
        values = np.divide(norms, largest, out=np.zeros_like(norms), where=largest > 0)
        return Panel(
            layer=None,
            kind="",
            window=None,
            heads=("gradient norm",),
            values=np.where(self.keys <= queries, values, np.nan)[None].astype(np.float32),
            allowed=(self.keys >= reach[:, None]) & (self.keys <= queries) & (self.keys >= 0),
            reach=reach,
        )

    def _first_reached(self, row: int) -> int:
        """First position that a query can depend on: each sliding layer looks W - 1 further back."""
        if not self.patient.window or any(kind != SLIDING for kind in self.kinds):
            return 0
        return max(0, row - len(self.kinds) * (self.patient.window - 1))


def _reduced(values: Floats32, view: View) -> tuple[tuple[str, ...], Floats32]:
    """Labels and values of the heads to show."""
    chosen = heads(view.heads, len(values))
    if chosen is not None:
        return tuple(map(str, chosen)), values[list(chosen)]
    missing = np.isnan(values).all(axis=0, keepdims=True)
    known = np.nan_to_num(values)
    one = known.max(axis=0, keepdims=True) if view.heads == "max" else known.mean(axis=0, keepdims=True)
    label = "all heads" if view.kind == "mask" and view.heads == "mean" else view.heads
    return (label,), np.where(missing, np.nan, one).astype(np.float32)
