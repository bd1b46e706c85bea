"""A ring buffer hands over its keys as they lie in it, and the mask counts them from the oldest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import handed_over_edited, no_cache_layers
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("visible-keys", why_not=no_cache_layers)
def keys_in_rolled_order(patient: Patient) -> Iterator[None]:
    """Let one layer hand over keys and values turned by one place, the newest first, to all tokens after the prompt."""

    def roll(states: torch.Tensor) -> torch.Tensor:
        return states.roll(1, dims=2)

    with handed_over_edited(patient, roll):
        yield
