"""Running the patient: generation with the recorder on, plain forwards, and the reference route."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gemma_doctor import compat
from gemma_doctor.capture.recorder import Recorder, recording
from gemma_doctor.check import CouldNotLook
from gemma_doctor.errors import in_one_line, is_ours
from gemma_doctor.evidence import Crash, Forward
from gemma_doctor.settings import Progress

# Noise floor in float32, in units of eps x max|logit|. Measured over all families (cached against uncached, padded
# against alone): at most 41, and a finding needs four floors.
FLOOR_EPS = 32


@dataclass
class Run:
    """One generation or forward, recorded.

    Attributes:
        recorder: with the forwards.
        tokens: prompt and generated ids, shape (b, columns).
        logits: raw next-token logits per generated token, each of shape (b, vocabulary).
        cache: as returned, None after a crash or without one.
        crash: the exception that ended it.
    """

    recorder: Recorder
    tokens: torch.Tensor
    logits: tuple[torch.Tensor, ...] = ()
    cache: Any = None
    crash: Crash | None = None

    @property
    def forwards(self) -> tuple[Forward, ...]:
        return tuple(self.recorder.forwards)


@dataclass
class Reference:
    """The reference route over the same tokens: float32, eager, alone, uncached.

    Families that share KV between layers get one cached prefill instead: their uncached forward was itself broken in
    some releases.

    Attributes:
        logits: for the last columns, shape (n, vocabulary).
        floor: noise floor in logits.
    """

    logits: torch.Tensor
    floor: float


class Heartbeat:
    """A streamer (put and end are generate's interface) that reports how many tokens came out."""

    def __init__(self, asked: int, progress: Progress) -> None:
        self._asked, self._progress, self._count = asked, progress, -1  # generate puts the prompt first

    def put(self, _ids: Any) -> None:
        self._count += 1
        if self._count and self._count % 16 == 0:
            self._progress(f"long generate: {self._count} of {self._asked} tokens")

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
) -> Run:
    """Greedy generation of `new_tokens` tokens (or of the `forced` ones) with the recorder on.

    Exceptions of the subject become a Crash.
    """
    mask = torch.ones_like(ids) if attention_mask is None else attention_mask
    run = Run(recorder, ids)

    def work() -> None:
        output = compat.generate(model, ids, mask, new_tokens, cache=cache, streamer=streamer, forced=forced)
        run.tokens, run.logits, run.cache = output.sequences, tuple(output.logits), compat.returned_cache(output)

    _watched(model, run, work)
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
        run.logits = (output.logits[:, -1],)

    _watched(model, run, work)
    return run


def _watched(model: Any, run: Run, work: Callable[[], None]) -> None:
    try:
        with torch.inference_mode(), recording(model, run.recorder):
            work()
    except compat.CannotWatch as error:
        raise CouldNotLook(str(error)) from error
    except Exception as error:
        compat.forget_kept_cache(model)
        run.crash = _crash(run.recorder, error)


def _crash(recorder: Recorder, error: Exception) -> Crash:
    """The subject's exception as evidence; ours, and a lack of memory, are no findings about the subject."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        raise CouldNotLook(f"out of memory: {in_one_line(error)}") from error
    if is_ours(error):
        raise error
    return recorder.crash(error)


def reference(
    exact: Any,
    deployed: Any,
    tokens: torch.Tensor,
    last: int,
    *,
    shares_kv: bool,
    backend: str = "eager",
) -> Reference:
    """Run the reference route.

    Args:
        exact: the model in float32.
        deployed: the model in the subject's dtype; the same object if that is float32.
        tokens: shape (1, T).
        last: how many columns of logits to keep, from the end.
        shares_kv: the family shares KV between layers.
        backend: attention implementation; another than eager where only padding or caching is to be compared.

    Raises:
        CouldNotLook: it crashed, or its logits are not finite.
    """
    run = Run(Recorder(torch.ones_like(tokens, dtype=torch.bool).cpu().numpy()), tokens)

    def work() -> None:
        run.logits = (_plain_logits(exact, tokens, last, shares_kv),)

    # before the recorder looks for the function in use
    with compat.attention_backend_set(exact, backend):
        _watched(exact, run, work)
    if run.crash:
        raise CouldNotLook(f"the reference route fails as well: {run.crash.kind}: {run.crash.message}")
    logits = run.logits[0]
    if not logits.isfinite().all():
        raise CouldNotLook("the logits of the reference route are not finite")
    if deployed is exact:
        floor = FLOOR_EPS * torch.finfo(torch.float32).eps * float(logits.abs().max())
    else:
        floor = float((_plain_logits(deployed, tokens, last, shares_kv) - logits).abs().max())
    return Reference(logits, floor)


@torch.inference_mode()
def _plain_logits(model: Any, tokens: torch.Tensor, last: int, use_cache: bool) -> torch.Tensor:
    """Logits of the last columns of one forward, in float32, shape (last, vocabulary)."""
    output = model(input_ids=tokens, use_cache=use_cache, logits_to_keep=last)
    logits: torch.Tensor = output.logits[0, -last:].float()
    return logits


def float32_copy(model: Any) -> Any:
    """The model itself if it is in float32, else a copy of it.

    Raises:
        CouldNotLook: there is no memory for one.
    """
    if next(model.parameters()).dtype is torch.float32:
        return model
    try:
        return copy.deepcopy(model).float()
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise CouldNotLook("no memory for a float32 copy to compare with") from error
