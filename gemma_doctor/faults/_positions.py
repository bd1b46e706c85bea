"""Changes the position ids that a text decoder works with; its masks, caches and rotary modules stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gemma_doctor.capture.hooks import Fed, hooked
from gemma_doctor.capture.model_facts import attention_modules, text_decoder
from gemma_doctor.loading import Patient


@contextmanager
def positions_edited(patient: Patient, edit: Callable[[Fed, torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Let the text decoders work with other position ids.

    Args:
        patient: whose models are changed.
        edit: from what a forward is fed, and its position ids, as handed over or as the decoder would count, shape
            (b or 1, columns), to those that it works with.
    """

    def change(
        decoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        fed, positions = Fed.of(decoder, args, kwargs), kwargs.get("position_ids")
        if positions is None:
            device = next(decoder.parameters()).device
            positions = torch.arange(fed.start, fed.start + fed.columns, device=device)[None]
        edited = edit(fed, positions)
        return None if edited is positions else (args, {**kwargs, "position_ids": edited})

    with hooked([text_decoder(model) for model in patient.models], change):
        yield


def no_decode_step(patient: Patient) -> str:
    """Reason why a patient cannot have a fault of its decode steps."""
    causal = any(getattr(one, "is_causal", True) for one in attention_modules(patient.model).values())
    return "" if causal else "the model reads in both directions and does not decode"
