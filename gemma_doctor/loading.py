"""From a Subject to a Patient: models in memory, ready to be examined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemma_doctor.subject import Subject


@dataclass
class Patient:
    """A subject with its models in memory. Faults change it in place (and undo it).

    Attributes:
        subject: what it was made from.
        model: a causal language model in eval mode at the true window W.
        reduced: skeletons only: the same weights at W' = min(W, 64), on which most passes run; else `model` itself.
        tokenizer: None for a bare config.
        window, reduced_window: W and W', None if the model has no window.
        padding_side: how batches are padded: the tokenizer's setting, or "left" without one.
        cut: skeletons only: what was cut, in words.
        dtype, device, backend: as they really are.
    """

    subject: Subject
    model: Any
    reduced: Any
    tokenizer: Any | None
    window: int | None
    reduced_window: int | None
    padding_side: str
    cut: str
    dtype: str
    device: str
    backend: str

    @property
    def models(self) -> tuple[Any, ...]:
        """The distinct models."""
        return (self.model,) if self.reduced is self.model else (self.model, self.reduced)
