"""Position ids are rounded on the way to their angles, though the ids are right (transformers pull request 29285)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch

from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.capture.rotation import rotary_modules
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient
from gemma_doctor.undone import method_replaced


@fault("position-range")
def positions_in_half_precision(patient: Patient) -> Iterator[None]:
    """Round position ids to bfloat16, exact up to 256, within the rotary modules."""
    modules = [one for model in patient.models for one in rotary_modules(text_decoder(model))]
    with ExitStack() as replaced:
        for module in modules:
            replaced.enter_context(method_replaced(module, "forward", _rounding(module.forward)))
        yield


def _rounding(forward: Any) -> Any:
    def rounded(*args: Any, **kwargs: Any) -> Any:
        return forward(*map(_rounded, args), **{name: _rounded(value) for name, value in kwargs.items()})

    return rounded


def _rounded(value: Any) -> Any:
    is_ids = isinstance(value, torch.Tensor) and not value.is_floating_point()
    return value.to(torch.bfloat16).to(value.dtype) if is_ids else value
