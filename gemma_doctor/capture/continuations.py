"""What the subject writes: the long generation, one for each further prompt, and what its own settings make of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gemma_doctor import compat
from gemma_doctor.capture import ledger, runs
from gemma_doctor.capture.device import peak_memory_mb
from gemma_doctor.capture.recorder import Recorder
from gemma_doctor.capture.runs import Heartbeat, Run
from gemma_doctor.capture.taken import Crossing, Taken
from gemma_doctor.capture.tokens import Given
from gemma_doctor.capture.wanted import around
from gemma_doctor.check import CouldNotLook
from gemma_doctor.evidence import GREEDY, OF_SERVED

if TYPE_CHECKING:
    import torch

    from gemma_doctor.capture.passes import Passes

LONG, SERVED = "long generate", "as served"
# Of the real 270M on two cores this takes 20 s; the long generation, which has to get to the edge, may take more.
MOST_FURTHER = 128
MOST_BRIEF = 40


class Continuations:
    """Generations of one patient that generates, each made once.

    Args:
        passes: whose patient, texts and settings are used. What is run is kept there.
        brief: as of `Passes`.
    """

    def __init__(self, passes: Passes, brief: bool) -> None:
        self._passes, self._brief = passes, brief
        self._model = passes.patient.reduced
        self._seconds: dict[str, float] = {}

    @property
    def all(self) -> tuple[Crossing, ...]:
        """The long one first, then one for each further prompt, then those as the subject's own settings say."""
        return (self.long, *self.further, *self.served)

    @cached_property
    def long(self) -> Crossing:
        """From below the edge to `margin` tokens after it, and the reference route over the same tokens."""
        passes, ids = self._passes, self._first_prompt()
        found = self._greedy(LONG, ids, passes.asked(ids.shape[1]))
        passes.timing["generate"] = spent = self._seconds[LONG]
        passes.timing["tokens_per_second"] = (found.run.tokens.shape[1] - ids.shape[1]) / spent
        memory = peak_memory_mb(passes.patient.device)
        if memory is not None:
            passes.timing["peak_memory_mb"] = memory
        return found

    @cached_property
    def further(self) -> tuple[Crossing, ...]:
        """One for each prompt but the first, across the edge where that is not far."""
        return tuple(self._greedy(one.name, self._row(one.ids), self.most(one)) for one in self._passes.text.given[1:])

    @cached_property
    def served(self) -> tuple[Crossing, ...]:
        """Every conversation, or where there is none the first prompt, as the subject's own settings say.

        Without a conversation only where those say something else than plain generation.
        """
        settings, conversations = compat.served_otherwise(self._model), self._conversations
        if conversations:
            return tuple(
                self._as_served(f"{OF_SERVED}{one.name}", self._row(one.ids), self.most(one), settings)
                for one in conversations
            )
        if not settings:
            return ()
        ids = self._first_prompt()
        return (self._as_served(SERVED, ids, self._passes.asked(ids.shape[1]), settings),)

    @property
    def _conversations(self) -> list[Given]:
        """Those that are what is served: a skeleton has only their lengths."""
        return [one for one in self._passes.text.given if one.conversation and self._passes.patient.encodes]

    @property
    def beside_the_long(self) -> tuple[int, int]:
        """Columns of prefill (the reference route included) and decode steps of all but the long one."""
        text, columns, steps, conversations = self._passes.text, 0, 0, self._conversations
        for one in (*text.given[1:], *conversations):
            columns, steps = columns + 2 * len(one.ids) + self.most(one), steps + self.most(one)
        if compat.served_otherwise(self._model) and not conversations:
            prompt = self._passes.below_edge if text.user is None else len(text.user)
            most = self._passes.asked(prompt)
            columns, steps = columns + 2 * prompt + most, steps + most
        return columns, steps

    def facts(self) -> dict[str, object]:
        """What was generated on which text, for the report's headline: the long one, and under "prompts" the others."""
        text, made = self._passes.text, self._finished()
        if LONG not in made:
            return {}
        sources = {one.name: one.source for one in text.given}
        others = [
            {"name": name, "from": sources.get(name.removeprefix(OF_SERVED), text.user_source)}
            | self._lengths(one)
            | ({"way": one.way, "ended_by": ended_by(one, self._model)} if one.way != GREEDY else {})
            for name, one in made.items()
            if name != LONG
        ]
        return {
            "prompt_from": text.user_source,
            "filled_from": text.source,
            **self._lengths(made[LONG]),
            **({"prompts": others} if others else {}),
        }

    def _finished(self) -> dict[str, Crossing]:
        """Those that were made by now; after an interruption not all were."""
        kept = vars(self)
        found = [kept["long"]] if "long" in kept else []
        return {one.recorded.name: one for one in (*found, *kept.get("further", ()), *kept.get("served", ()))}

    @staticmethod
    def _lengths(made: Crossing) -> dict[str, int | None]:
        one = made.recorded
        generated = one.forwards[-1].total - one.prompt_length + 1 if one.forwards else 0
        step = max((one.window or 0) - one.prompt_length, 0)
        crossed = step if one.window and generated > step else None
        return {"prompt_length": one.prompt_length, "generated": generated, "crossed_at": crossed}

    def most(self, one: Given) -> int:
        """New tokens for a given prompt: as many as were asked for, else the first gets to the edge and others only
        where it is near.
        """
        asked = self._passes.asked(len(one.ids))
        capped = self._passes.settings.max_new_tokens is None and one is not self._passes.text.given[0]
        return min(asked, MOST_FURTHER) if capped else asked

    def _first_prompt(self) -> torch.Tensor:
        """The prompt of the long generation, shape (1, n)."""
        user = self._passes.text.user
        return self._row(self._passes.text.exact(self._passes.below_edge)) if user is None else self._row(user)

    def _row(self, ids: torch.Tensor) -> torch.Tensor:
        return ids[None].to(self._passes.patient.device)

    # --- making one --------------------------------------------------------------------------------------------------

    def _greedy(self, name: str, ids: torch.Tensor, asked: int) -> Crossing:
        def again(recorder: Recorder, streamer: Heartbeat | None = None) -> Run:
            return runs.generate(self._model, ids, asked, recorder=recorder, streamer=streamer)

        return self._made(name, ids, asked, again, GREEDY, {})

    def _as_served(self, name: str, ids: torch.Tensor, most: int, settings: dict[str, object]) -> Crossing:
        if self._brief:  # whatever the margin: a loop needs a few tokens to be one
            most = min(MOST_BRIEF, self._passes.room(ids.shape[1]))
        seed = self._passes.settings.seed
        ends = self._passes.patient.subject.weights == "real"  # random weights end a text by chance
        said = ", ".join(f"{key}={value!r}"[:60] for key, value in settings.items()) or "greedy"

        def again(recorder: Recorder, streamer: Heartbeat | None = None) -> Run:
            return runs.generate_as_served(
                self._model, ids, most, seed, recorder=recorder, streamer=streamer, ends=ends
            )

        held = "in force" if ends else "suppressed"
        return self._made(name, ids, most, again, f"{OF_SERVED}{said}, end tokens {held}", settings)

    def _made(
        self,
        name: str,
        ids: torch.Tensor,
        asked: int,
        again: Callable[..., Run],
        way: str,
        settings: Mapping[str, object],
    ) -> Crossing:
        passes, prompt = self._passes, ids.shape[1]
        passes.progress(f"{name}: {prompt} tokens, then {asked} more")
        started = time.perf_counter()
        with ledger.entry(name):
            real = np.ones(tuple(ids.shape), dtype=bool)
            run = again(Recorder(real, around(passes.edge)), Heartbeat(name, asked, passes.progress))
        self._seconds[name] = time.perf_counter() - started
        reference, why_not = None, ""
        if run.crash is None:
            try:
                reference = passes.references.over(run.tokens, run.tokens.shape[1] - prompt + 1)
            except CouldNotLook as error:
                why_not = str(error)
        passes.taken[name] = Taken(run, prompt, None, again)
        return Crossing(passes.finished(name, run, prompt), run, reference, why_not, way, settings)


def ended_by(made: Crossing, model: object) -> int | None:
    """The end token that ended a generation as served, None if none did or end tokens were suppressed."""
    new = made.run.tokens[0, made.recorded.prompt_length :].tolist()
    return new[-1] if made.way != GREEDY and new and new[-1] in compat.end_tokens(model) else None
