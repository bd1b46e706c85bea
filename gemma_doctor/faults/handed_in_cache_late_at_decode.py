"""On a cache that the user built, the last layer's MLP is one step late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gemma_doctor.capture.hooks import Fed
from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import late_at_decode
from gemma_doctor.faults._generation import generate_watched
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


@fault("own-cache-parity", routes=("own-cache",))
def handed_in_cache_late_at_decode(patient: Patient) -> Iterator[None]:
    """Let the last layer's MLP be one decode step late on a cache that was handed in empty."""
    handed_in: list[Any] = []

    def theirs(fed: Fed, _output: torch.Tensor) -> bool:
        if fed.cache is not None and not fed.start:
            handed_in[:] = [fed.cache]
        return not running and any(fed.cache is one for one in handed_in)

    with generate_watched(patient) as running, late_at_decode(patient, theirs):
        yield
