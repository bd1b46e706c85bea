"""Two requests of a batch go on with each other's keys: their rows change places, and the cache's do not follow."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import held_edited_after_prompt, no_cache_layers
from gemma_doctor.loading import Patient


@fault("past-key-length", why_not=no_cache_layers)
def rows_swapped_in_batch(patient: Patient) -> Iterator[None]:
    """Exchange the first two rows of all keys and values that the cache holds after the prompt."""

    def swap(states: torch.Tensor) -> torch.Tensor:
        return torch.cat([states[:2].flip(0), states[2:]])

    with held_edited_after_prompt(lambda held: [swap(states) for states in held]):
        yield
