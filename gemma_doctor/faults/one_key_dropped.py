"""An eviction clears a slot that is still in use: one key of a layer is lost, and no length tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import changed_layer, held_edited_after_prompt, no_cache_layers
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("past-key-length", why_not=no_cache_layers)
def one_key_dropped(patient: Patient) -> Iterator[None]:
    """Clear the middle key and its value of what one layer holds after the prompt."""

    def clear(states: torch.Tensor) -> torch.Tensor:
        states = states.clone()
        states[:, :, states.shape[2] // 2] = 0
        return states

    with held_edited_after_prompt(lambda held: [clear(states) for states in held], changed_layer(patient)):
        yield
