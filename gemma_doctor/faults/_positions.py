"""Changes the position ids that a text decoder works with; its masks, caches and rotary modules stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from gemma_doctor.capture.hooks import fed_columns, handed_cache, hooked
from gemma_doctor.capture.model_facts import attention_modules, text_decoder
from gemma_doctor.loading import Patient


@dataclass(frozen=True)
class Numbered:
    """The tokens of one forward.

    Attributes:
        model: whose text decoder is fed them.
        start: columns that its cache had seen before, 0 without one.
        padding: attention mask of all columns so far, shape (b, start + columns); None if there is none.
        positions: their ids, as handed over or as the decoder would count, shape (b or 1, columns).
    """

    model: Any
    start: int
    padding: torch.Tensor | None
    positions: torch.Tensor

    @property
    def is_decode_step(self) -> bool:
        return self.start > 0 and self.positions.shape[1] == 1


@contextmanager
def positions_edited(patient: Patient, edit: Callable[[Numbered], torch.Tensor]) -> Iterator[None]:
    """Let the text decoders work with other position ids, each forward with those that `edit` makes."""
    models = {id(text_decoder(model)): model for model in patient.models}

    def change(
        decoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        cache, mask, positions = handed_cache(args, kwargs), kwargs.get("attention_mask"), kwargs.get("position_ids")
        start = 0 if cache is None else int(cache.get_seq_length())
        if positions is None:
            device = next(decoder.parameters()).device
            positions = torch.arange(start, start + fed_columns(args, kwargs), device=device)[None]
        is_padding = isinstance(mask, torch.Tensor) and mask.dim() == 2
        edited = edit(Numbered(models[id(decoder)], start, mask if is_padding else None, positions))
        return None if edited is positions else (args, {**kwargs, "position_ids": edited})

    with hooked([text_decoder(model) for model in patient.models], change):
        yield


def no_decode_step(patient: Patient) -> str:
    """Reason why a patient cannot have a fault of its decode steps."""
    causal = any(getattr(one, "is_causal", True) for one in attention_modules(patient.model).values())
    return "" if causal else "the model reads in both directions and does not decode"
