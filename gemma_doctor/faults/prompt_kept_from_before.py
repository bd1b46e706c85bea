"""A prompt that is generated from twice: the second time something is left over from the first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gemma_doctor.capture.hooks import Fed
from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import mlp_edited, without_last
from gemma_doctor.faults._generation import generate_watched
from gemma_doctor.loading import Patient


@fault("repeated-generate-parity", routes=("repeated-generate",))
def prompt_kept_from_before(patient: Patient) -> Iterator[None]:
    """Drop the last token's MLP where generate() was asked for the same prompt before."""
    prompts: list[torch.Tensor] = []
    again = False

    def remember(ids: torch.Tensor, _options: dict[str, Any]) -> None:
        nonlocal again
        again = any(torch.equal(ids, one) for one in prompts)
        prompts.append(ids)

    def drop(_fed: Fed, output: torch.Tensor) -> torch.Tensor:
        return without_last(output) if running and again else output

    with generate_watched(patient, remember) as running, mlp_edited(patient, drop):
        yield
