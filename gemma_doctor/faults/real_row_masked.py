"""One real token in the middle of a prompt is left without any key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gemma_doctor.capture.hooks import hooked
from gemma_doctor.faults import attention_of, fault
from gemma_doctor.loading import Patient


@fault("all-masked-rows")
def real_row_masked(patient: Patient) -> Iterator[None]:
    """Block a whole row of every prefill mask, in the middle of the first sequence."""

    def block(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        mask = kwargs.get("attention_mask")
        if isinstance(mask, torch.Tensor) and mask.dim() == 4 and mask.shape[2] > 1:
            mask = mask.clone()
            mask[0, :, mask.shape[2] // 2] = False if mask.dtype is torch.bool else torch.finfo(mask.dtype).min
            kwargs["attention_mask"] = mask
        return args, kwargs

    with hooked(attention_of(patient), block):
        yield
