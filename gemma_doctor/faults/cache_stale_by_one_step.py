"""The cache is read before the newest token is written into it, as where two streams do not wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import handed_over_edited, no_cache_layers
from gemma_doctor.loading import Patient


@fault("past-key-length", why_not=no_cache_layers)
def cache_stale_by_one_step(patient: Patient) -> Iterator[None]:
    """Let one layer hand over the previous token's key and value in the place of the newest at decode steps."""

    def stale(states: torch.Tensor) -> torch.Tensor:
        return torch.cat([states[:, :, :-1], states[:, :, -2:-1]], dim=2)

    with handed_over_edited(patient, stale, single=True):
        yield
