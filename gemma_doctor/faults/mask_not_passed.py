"""generate() is not told the mask, and its pad token also ends texts: pads count as tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gemma_doctor.faults import fault
from gemma_doctor.faults._generation import generate_watched
from gemma_doctor.loading import Patient


@fault("mask-pattern")
def mask_not_passed(patient: Patient) -> Iterator[None]:
    """Let generate() take every column of a batch for a real one."""

    def all_real(_ids: Any, options: dict[str, Any]) -> None:
        options["attention_mask"] = torch.ones_like(options["attention_mask"])

    with generate_watched(patient, all_real):
        yield
