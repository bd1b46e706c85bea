"""One head of one layer is computed without its mask: no mask shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gemma_doctor.faults import fault
from gemma_doctor.faults._kernels import Kernel, kernel_edited
from gemma_doctor.loading import Patient


@fault("visible-keys")
def head_ignores_mask(patient: Patient) -> Iterator[None]:
    """Let head 0 of one layer read every key that the kernel is handed."""

    def half_blind(kernel: Kernel, named: dict[str, Any]) -> Any:
        query, key, mask = named["query"], named["key"], named["attention_mask"]
        shape = (query.shape[0], 1, query.shape[2], key.shape[2])
        if mask is None or mask.dtype is torch.bool:
            blind = torch.ones(shape, dtype=torch.bool, device=query.device)
        else:
            blind = torch.zeros(shape, dtype=mask.dtype, device=query.device)
        output, *rest = kernel(**named)
        output = output.clone()
        output[:, :, 0] = kernel(**{**named, "attention_mask": blind})[0][:, :, 0]
        return output, *rest

    with kernel_edited(patient, half_blind):
        yield
