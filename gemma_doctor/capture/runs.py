"""Running the patient with the recorder on: generation and plain forwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gemma_doctor import compat
from gemma_doctor.capture import ledger
from gemma_doctor.capture.recorder import Recorder, recording
from gemma_doctor.check import CouldNotLook
from gemma_doctor.errors import in_one_line, is_ours
from gemma_doctor.evidence import Crash, Forward
from gemma_doctor.settings import Progress


@dataclass
class Run:
    """One generation or forward, recorded.

    Attributes:
        recorder: with the forwards.
        tokens: prompt and generated ids, shape (b, columns).
        logits: raw next-token logits per generated token, each of shape (b, vocabulary).
        cache: as returned, None after a crash or without one.
        scores: summed log-probability of each sequence, where beams were searched.
        crash: the exception that ended it.
    """

    recorder: Recorder
    tokens: torch.Tensor
    logits: tuple[torch.Tensor, ...] = ()
    cache: Any = None
    scores: tuple[float, ...] = ()
    crash: Crash | None = None

    @property
    def forwards(self) -> tuple[Forward, ...]:
        return tuple(self.recorder.forwards)


class Heartbeat:
    """A streamer (put and end are generate's interface) that reports how many tokens came out."""

    def __init__(self, name: str, asked: int, progress: Progress) -> None:
        self._name, self._asked, self._progress = name, asked, progress
        self._count = -1  # generate puts the prompt first

    def put(self, _ids: Any) -> None:
        self._count += 1
        if self._count and self._count % 16 == 0:
            self._progress(f"{self._name}: {self._count} of {self._asked} tokens")

    def end(self) -> None:
        return


def generate(
    model: Any,
    ids: torch.Tensor,
    new_tokens: int,
    *,
    recorder: Recorder,
    attention_mask: torch.Tensor | None = None,
    cache: Any = None,
    streamer: Any = None,
    forced: torch.Tensor | None = None,
    **options: Any,
) -> Run:
    """Greedy generation of `new_tokens` tokens (or of the `forced` ones) with the recorder on.

    Exceptions of the subject become a Crash. `options` are those of `compat.generate`.
    """
    mask = torch.ones_like(ids) if attention_mask is None else attention_mask
    run = Run(recorder, ids)

    def work() -> None:
        output = compat.generate(model, ids, mask, new_tokens, cache=cache, streamer=streamer, forced=forced, **options)
        run.tokens, run.logits, run.cache = output.sequences, tuple(output.logits), compat.returned_cache(output)
        run.scores = compat.sequence_scores(output)

    watched(model, run, work)
    return run


def generate_as_served(
    model: Any, ids: torch.Tensor, most: int, seed: int, *, recorder: Recorder, streamer: Any = None, ends: bool = True
) -> Run:
    """Generation as the subject's own settings say, of at most `most` tokens, with the recorder on (see
    `compat.generate_as_served`). Exceptions of the subject become a Crash.
    """
    run = Run(recorder, ids)

    def work() -> None:
        output = compat.generate_as_served(model, ids, most, seed, streamer, ends)
        run.tokens, run.logits, run.cache = output.sequences, tuple(output.logits), compat.returned_cache(output)

    watched(model, run, work)
    return run


def forward(
    model: Any,
    ids: torch.Tensor,
    attention_mask: torch.Tensor,
    recorder: Recorder,
    *,
    use_cache: bool = False,
    last: int = 1,
) -> Run:
    """One forward, as models run that score texts or do not generate.

    Args:
        last: columns of logits that are computed. Gemma 4's layers with shared keys compute no more queries than these.
    """
    run = Run(recorder, ids)

    def work() -> None:
        output = model(input_ids=ids, attention_mask=attention_mask, use_cache=use_cache, logits_to_keep=last)
        run.logits = tuple(output.logits.unbind(dim=1))
        run.cache = compat.returned_cache(output) if use_cache else None

    watched(model, run, work)
    return run


def watched(model: Any, run: Run, work: Callable[[], None]) -> None:
    """Do some work of a model with the run's recorder on; its exceptions become the run's crash.

    Raises:
        CouldNotLook: the model cannot be watched, or memory is short.
    """
    run.recorder.begin()
    before = len(run.recorder.forwards)
    try:
        with torch.inference_mode(), recording(model, run.recorder):
            work()
    except compat.CannotWatch as error:
        raise CouldNotLook(str(error)) from error
    except Exception as error:
        compat.forget_kept_cache(model)
        only_the_subjects(error)
        run.crash = run.recorder.crash(error)
    finally:
        done = run.recorder.forwards[before:]
        ledger.count(len(done), sum(one.fed * len(one.real) for one in done))


def only_the_subjects(error: Exception) -> None:
    """Let an exception pass as one of the subject; ours, and a lack of memory, are no findings about it.

    Raises:
        CouldNotLook: memory is short.
    """
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        raise CouldNotLook(f"out of memory: {in_one_line(error)}") from error
    if is_ours(error):
        raise error
