"""What came out of the passes, beside what was recorded in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from gemma_doctor.capture.recorder import Recorder
from gemma_doctor.capture.reference import Reference
from gemma_doctor.capture.runs import Run
from gemma_doctor.evidence import GREEDY, Bools, Pass


@dataclass(frozen=True)
class Taken:
    """A recorded pass, and how to run it again.

    Attributes:
        run: tokens, logits and crash.
        prompt: columns before the first generated token.
        real: attention mask of the prompt, shape (rows, columns); None without pads.
        again: runs it once more with another recorder.
    """

    run: Run
    prompt: int
    real: torch.Tensor | None
    again: Callable[[Recorder], Run]


@dataclass(frozen=True)
class Crossing:
    """The long generation, or another one on a prompt of its own.

    Attributes:
        recorded: its pass.
        run: tokens and crash.
        reference: the reference route over the same tokens, None if it could not be run.
        why_no_reference: the reason then.
        way, settings: how it was asked for, as in `Generation`.
    """

    recorded: Pass
    run: Run
    reference: Reference | None
    why_no_reference: str
    way: str = GREEDY
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """The padded batch. `rows` are its prompts, each of shape (n,); `real` its attention mask, (rows, columns)."""

    recorded: Pass
    run: Run
    rows: tuple[torch.Tensor, ...]
    real: Bools

    @property
    def written(self) -> tuple[torch.Tensor, ...]:
        """Each row with what was generated after it (nothing where the pass crashed), shape (n,)."""
        generated = self.run.tokens[:, self.real.shape[1] :]
        return tuple(torch.cat(pair) for pair in zip(self.rows, generated, strict=True))
