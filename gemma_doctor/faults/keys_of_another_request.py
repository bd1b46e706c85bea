"""A block of a layer's cache is another request's: it was given to this one as well, or never written for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from gemma_doctor import compat
from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import changed_layer, held_edited_after_prompt, no_cache_layers
from gemma_doctor.loading import Patient

BLOCK = 4  # keys
PROMPT = 16  # tokens of the other request


@fault("past-key-length", why_not=no_cache_layers)
def keys_of_another_request(patient: Patient) -> Iterator[None]:
    """Put keys and values of a prompt that ran before into the middle of what one layer holds after the prompt."""
    layer = changed_layer(patient)
    theirs = _block(patient, layer)

    def mix(held: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return [_mixed(states, other) for states, other in zip(held, theirs, strict=True)]

    with held_edited_after_prompt(mix, layer):
        yield


def _mixed(states: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Keys or values with a block of another request's in the middle; nothing else where they are no more than that."""
    block = min(BLOCK, states.shape[2])
    middle = (states.shape[2] - block) // 2
    foreign = other[:, :, :block].expand(len(states), -1, -1, -1)
    return torch.cat([states[:, :, :middle], foreign, states[:, :, middle + block :]], dim=2)


def _block(patient: Patient, layer: int) -> list[torch.Tensor]:
    """Keys and values of the other request in one layer, each of shape (1, kv heads, BLOCK, head_dim)."""
    model = patient.reduced
    ids = torch.arange(10, 10 + PROMPT, device=model.device)[None]
    with torch.inference_mode():
        cache = compat.returned_cache(model(ids, use_cache=True))
    return [states[:, :, -BLOCK:].clone() for states in compat.held_states(cache, layer)]
