"""With use_cache=False generate() leaves the last token out of the last layer's MLP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.capture.hooks import Fed
from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import mlp_edited, without_last
from gemma_doctor.faults._generation import generate_watched
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("uncached-generate-parity", routes=("uncached-generate",))
def last_token_skipped_without_cache(patient: Patient) -> Iterator[None]:
    """Drop the last token's MLP where generate() runs without a cache."""

    def drop(fed: Fed, output: torch.Tensor) -> torch.Tensor:
        return without_last(output) if running and fed.uncached else output

    with generate_watched(patient) as running, mlp_edited(patient, drop):
        yield
