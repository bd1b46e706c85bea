"""Where routes are run: texts around the window edge, and the ways in which the library can be asked for logits."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gemma_doctor import compat
from gemma_doctor.capture import material, runs
from gemma_doctor.capture.attempt import Attempt, Text, attempts, named
from gemma_doctor.capture.material import Loop, Streamer
from gemma_doctor.capture.passes import STEPS, Passes
from gemma_doctor.capture.recorder import Recorder
from gemma_doctor.capture.tokens import padded
from gemma_doctor.check import CouldNotLook, NotApplicable
from gemma_doctor.errors import in_one_line
from gemma_doctor.evidence import LOGITS, Crash
from gemma_doctor.loading import Patient

EXPERTS = "half precision: rounding lets tokens choose other experts, so that no difference proves anything"
BELOW_EDGE = 4
NEW = 3  # tokens after a prompt at the edge


class Lab:
    """One patient, and what a route needs to run on it.

    Args:
        patient: who is examined.
        passes: what is run with the recorder on; routes in everyone's use are read off there.
        thorough: run all texts, and what takes a second copy of the weights; else only the text that crosses the
            window from below.
        again: run recorded passes once more, without recording: something about them is to be found out.
        watching: makes a context in which every run takes place.
        backend: attention implementation, None for the subject's.

    Attributes:
        patient, passes: as given.
        model: the one that routes run on.
        edge: total length at which the window is full; of a model without one, where such a length might be.
        generates: it is no bidirectional one.
        thorough: as given.
    """

    STEPS = STEPS

    def __init__(
        self,
        patient: Patient,
        passes: Passes,
        *,
        thorough: bool,
        again: bool = False,
        watching: Callable[[], AbstractContextManager[Any]] = nullcontext,
        backend: str | None = None,
    ) -> None:
        self.patient, self.passes = patient, passes
        self.model, self.edge, self.generates = patient.reduced, passes.edge, passes.facts.causal
        self.thorough = thorough
        self._again, self._watching = again, watching
        self._backend = backend or patient.backend

    # --- texts -------------------------------------------------------------------------------------------------------

    def texts(self, more: int = 0, only: int | None = None) -> Iterator[Text]:
        """Prompts below the edge that cross it, of W-1, W and W+1 tokens, and beyond.

        The generated parts pass total lengths that are multiples of 8 and 32. Lengths that the model has no positions
        for are left out.

        Args:
            more: new tokens on top of the usual.
            only: how many of these texts, None for all; the first crosses the edge from below.
        """
        edge = self.edge
        wanted = [(-BELOW_EDGE, BELOW_EDGE + NEW), (-1, NEW), (0, NEW), (1, NEW), (edge // 2 - 5, 2 * NEW)]
        for delta, new in wanted[: only if self.thorough else 1]:
            text = self.text(edge + delta, new + more)
            if text is not None:
                yield text

    def text(self, prompt: int, new: int) -> Text | None:
        """Prompt and continuation of given lengths; None if the model has no such lengths."""
        if prompt < 1 or not self.passes.fits(prompt + new):
            return None
        name = f"prompt W{prompt - self.edge:+d}" if self.passes.window else f"prompt of {prompt}"
        ids = self.passes.text.exact(prompt + new).to(self.patient.device)
        return Text(name.removesuffix("+0"), ids, prompt, new)

    @property
    def rows(self) -> tuple[torch.Tensor, ...]:
        """Prompts of unequal length, shape (n,) each."""
        return self.passes.batch.rows

    @property
    def written_rows(self) -> tuple[torch.Tensor, ...]:
        """The same with what the padded batch wrote after them: the reference route knows them already."""
        return self.passes.batch.written

    # --- ways of asking ----------------------------------------------------------------------------------------------

    def recorded(self, *names: str) -> Iterator[Attempt]:
        """What recorded passes gave, every row of them; "" stands for one that the model is too short for."""
        for name in filter(None, names):
            taken = self.passes.taken[name]
            run = taken.run
            if self._again:
                with self._watched():
                    run = taken.again(Recorder(run.recorder.padding, masks=False))
            yield from self._attempts(name, run, taken.prompt, taken.real, pass_name=name)

    def generate(self, text: Text, way: str = "", *, compared: str = LOGITS, **options: Any) -> Attempt:
        """generate() with further options (see `compat.generate`), greedily.

        Args:
            text: whose prompt is used.
            way: what is special about it, in words.
            compared: CHOICES where the logits that come back are not one for each token.
            options: of `compat.generate`.
        """
        return next(self.generate_several(text, way, compared=compared, **options))

    def generate_several(
        self, text: Text, way: str = "", *, compared: str = LOGITS, **options: Any
    ) -> Iterator[Attempt]:
        """The same where generate() returns several sequences for one prompt."""
        run = self.run(
            lambda recorder: runs.generate(
                self.model, text.ids[None, : text.prompt], text.new, recorder=recorder, **options
            )
        )
        yield from self._attempts(named(text.name, way), run, text.prompt, compared=compared, asked=text.new)

    def generate_batch(
        self, name: str, rows: Sequence[torch.Tensor], new: int = STEPS, **options: Any
    ) -> Iterator[Attempt]:
        """generate() for rows, each of shape (n,), padded on the left; one attempt per row."""
        ids, mask = padded(rows, "left", self.patient.pad_token_id)
        run = self.run(
            lambda recorder: runs.generate(self.model, ids, new, recorder=recorder, attention_mask=mask, **options),
            padding=mask,
        )
        yield from self._attempts(name, run, ids.shape[1], mask, asked=new)

    def feed(self, text: Text, pieces: Sequence[int], way: str = "", cache: Any = None) -> Attempt:
        """A loop as users write it: pieces of the text into the model, one token at a time after them.

        Args:
            text: prompt and continuation.
            pieces: tokens per forward, in order; empty ones are left out. A negative one rolls the cache back by so
                many tokens.
            way: what is special about it, in words.
            cache: that the first forward gets; None leaves it to the model.
        """
        run = runs.Run(Recorder(np.ones((1, len(text.ids)), dtype=bool), masks=False), text.ids[None])
        lengths = [piece for piece in pieces if piece]
        lengths += [1] * (len(text.ids) - sum(lengths))

        def work() -> None:
            found: list[torch.Tensor] = []
            loop = Loop(self.model, cache)
            for length in lengths:
                if length < 0:
                    run.recorder.begin()  # crop() may refuse
                    loop.roll_back(-length)
                    del found[length:]
                else:
                    found += loop.forward(text.ids[loop.seen : loop.seen + length], 1 if not found else length)
            run.logits = tuple(found)

        with self._watched():
            runs.watched(self.model, run, work)
        return Attempt(
            name=named(text.name, way),
            tokens=text.ids,
            first=lengths[0] - 1,
            logits=torch.stack(run.logits) if run.logits else None,
            crash=run.crash,
            model=self._made,
        )

    def feed_compiled(self, text: Text, way: str, cache: Any) -> Attempt:
        """A prefill as it is, then decode steps of the compiled model, one token at a time.

        Nothing is recorded: hooks would be compiled with it.

        Raises:
            NotApplicable: torch cannot compile it here.
        """
        loop, crash, found, compiled_at = Loop(self.model, cache), None, list[torch.Tensor](), list[int]()
        try:
            with compat.quiet(), torch.inference_mode(), material.compiled(self.model) as (step, graphs):
                found += loop.forward(text.ids[: text.prompt], 1)
                while loop.seen < len(text.ids):
                    before = graphs()
                    found += loop.forward(text.ids[loop.seen : loop.seen + 1], 1, step)
                    compiled_at += [loop.seen - 1] if graphs() > before else []
        except Exception as error:
            if type(error).__module__.startswith("torch._dynamo"):
                raise NotApplicable(f"it cannot be compiled here: {in_one_line(error)}") from error
            runs.only_the_subjects(error)
            crash = Crash(type(error).__name__, in_one_line(error), len(found), loop.seen + 1, layer=None)
        return Attempt(
            name=named(text.name, way),
            tokens=text.ids,
            first=text.prompt - 1,
            logits=torch.stack(found) if found else None,
            crash=crash,
            compiled_at=tuple(compiled_at),
        )

    def forward(self, text: Text, way: str = "") -> Attempt:
        """One forward over prompt and continuation, without a cache."""
        ids = text.ids[None]
        run = self.run(
            lambda recorder: runs.forward(self.model, ids, torch.ones_like(ids), recorder, last=text.new + 1)
        )
        return next(self._attempts(named(text.name, way), run, len(text.ids)))

    def forward_batch(
        self, name: str, rows: Sequence[torch.Tensor], side: str, *, positions: bool = False
    ) -> Iterator[Attempt]:
        """One forward over rows of unequal length, each of shape (n,): the logits of their ends.

        With a cache where the reference has one: it is the padding that is looked at.

        Args:
            name: in words.
            rows: token ids.
            side: of the padding.
            positions: give position_ids that count each row's own tokens, as a mask alone does not make a forward do.
        """
        ids, mask = padded(rows, side, self.patient.pad_token_id)
        ends = [ids.shape[1] if side == "left" else len(row) for row in rows]
        columns = sorted({column for end in ends for column in range(max(0, end - STEPS), end)})
        given: dict[str, Any] = {"use_cache": self.passes.facts.shares_kv}
        given |= {"position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0)} if positions else {}
        run = runs.Run(Recorder(mask.bool().cpu().numpy(), masks=False), ids)

        def work() -> None:
            kept = torch.tensor(columns, device=ids.device)
            output = self.model(input_ids=ids, attention_mask=mask, logits_to_keep=kept, **given)
            run.logits = tuple(output.logits.unbind(dim=1))

        with self._watched():
            runs.watched(self.model, run, work)
        for index, (row, end) in enumerate(zip(rows, ends, strict=True)):
            of_row = [at for at, column in enumerate(columns) if end - min(STEPS, len(row)) <= column < end]
            yield Attempt(
                name=f"{name}, row {index}",
                tokens=row,
                first=len(row) - len(of_row),
                logits=torch.stack([run.logits[at][index] for at in of_row]) if run.logits else None,
                row=index,
                pads=ids.shape[1] - len(row),
                pad_side=side,
                alone=False,
                crash=run.crash,
                model=self._made,
            )

    def run(self, work: Callable[[Recorder], runs.Run], padding: torch.Tensor | None = None) -> runs.Run:
        """Run something with a recorder that only says where it crashed."""
        real = np.ones((1, 1), dtype=bool) if padding is None else padding.bool().cpu().numpy()
        with self._watched():
            return work(Recorder(real, masks=False))

    @contextmanager
    def _watched(self) -> Iterator[None]:
        with compat.quiet(), compat.attention_backend_set(self.model, self._backend), self._watching():
            yield

    def _attempts(
        self, name: str, run: runs.Run, prompt: int, mask: torch.Tensor | None = None, **options: Any
    ) -> Iterator[Attempt]:
        """See `attempt.attempts`."""
        return attempts(name, run, prompt, mask, model=self._made, **options)

    @property
    def _made(self) -> Any:
        """The model that attempts are of, where it is not the subject as it is."""
        return None if self.model is self.patient.reduced else self.model

    # --- material ----------------------------------------------------------------------------------------------------

    def streamed(self, text: Text) -> Attempt:
        """generate() through a streamer. Other ids than those that come back count as an exception."""
        streamer = Streamer()
        attempt = self.generate(text, streamer=streamer)
        seen = torch.cat(streamer.ids).to(attempt.tokens.device) if streamer.ids else attempt.tokens[:0]
        if attempt.crash is not None or torch.equal(seen, attempt.tokens):
            return attempt
        said = f"{len(seen)} ids were streamed, and they are not the {len(attempt.tokens)} that came back"
        return replace(attempt, crash=Crash("other tokens", said, text.new, len(attempt.tokens), layer=None))

    def filled_cache(self, text: Text) -> Any:
        """A cache in which every token of a text's prompt is, as a forward returns it.

        Raises:
            CouldNotLook: that forward crashed.
        """
        ids = text.ids[None, : text.prompt]
        run = self.run(lambda recorder: runs.forward(self.model, ids, torch.ones_like(ids), recorder, use_cache=True))
        if run.crash is not None:
            raise CouldNotLook(f"{run.crash.kind}: {run.crash.message}")
        return run.cache

    def drafter(self) -> Any:
        """A small model that drafts tokens (see `material.drafter`).

        Raises:
            NotApplicable: that would take a second copy of real weights, and the route is not in use.
        """
        self._copy_allowed()
        return self._drafter

    def in_dtype(self, name: str) -> Lab:
        """The lab with the weights in another dtype, e.g. "bfloat16" (see `material.in_dtype`).

        Raises:
            NotApplicable: that would take a second copy of real weights, and the route is not in use; or the model is
                a mixture of experts.
        """
        dtype = getattr(torch, name)
        if next(self.model.parameters()).dtype is dtype:
            return self
        if compat.has_experts(self.model):
            raise NotApplicable(EXPERTS)
        self._copy_allowed()
        other = copy.copy(self)
        other.model = material.in_dtype(self.model, dtype)
        # half precision is slow on a CPU: five texts of real weights would take the better part of an hour
        other.thorough = self.thorough and (self.patient.subject.weights == "skeleton" or self.patient.device != "cpu")
        return other

    def attending(self, backend: str) -> Lab:
        """The lab with another attention implementation.

        Raises:
            NotApplicable: the model, the machine or the release does not offer it.
        """
        why_not = compat.why_not_backend(self.model, backend, self.patient.device)
        if why_not:
            raise NotApplicable(why_not)
        other = copy.copy(self)
        other._backend = backend
        return other

    def _copy_allowed(self) -> None:
        if self.patient.subject.weights == "real" and not self.thorough:
            raise NotApplicable("takes a second copy of the weights: --routes names it, or --depth deep")

    @cached_property
    def _drafter(self) -> Any:
        return material.drafter(self.model)
