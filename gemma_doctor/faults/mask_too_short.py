"""Masks have one column less than there are keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gemma_doctor.capture.hooks import hooked
from gemma_doctor.faults import attention_of, fault
from gemma_doctor.loading import Patient


@fault("mask-shape")
def mask_too_short(patient: Patient) -> Iterator[None]:
    """Cut the oldest column off every mask that the attention modules receive."""

    def cut(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        mask = kwargs.get("attention_mask")
        if isinstance(mask, torch.Tensor) and mask.dim() == 4:
            kwargs["attention_mask"] = mask[..., 1:]
        return args, kwargs

    with hooked(attention_of(patient), cut):
        yield
