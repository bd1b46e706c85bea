"""Each decode step starts again at position 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gemma_doctor.capture.hooks import hooked
from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient


@fault("position-ids")
def positions_reset_at_decode(patient: Patient) -> Iterator[None]:
    """Hand position 0 to the text decoder at every decode step."""

    def reset(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        fed = kwargs.get("input_ids")
        fed = kwargs.get("inputs_embeds") if fed is None else fed
        if fed is not None and fed.shape[1] == 1:
            kwargs["position_ids"] = torch.zeros(fed.shape[:2], dtype=torch.long, device=fed.device)
        return args, kwargs

    with hooked([text_decoder(model) for model in patient.models], reset):
        yield
