"""Without a cache the last layer works in half precision: an autocast region of the training path."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor import compat
from gemma_doctor.capture.hooks import Fed
from gemma_doctor.faults import attention_of, fault
from gemma_doctor.faults._forwards import mlp_edited
from gemma_doctor.loading import Patient


def _shares_keys(patient: Patient) -> bool:
    return not all(map(compat.has_own_keys, attention_of(patient)))


def _why_not(patient: Patient) -> str:
    plain = patient.backend == "eager" and not _shares_keys(patient)
    return "eager and uncached is the reference route itself" if plain else ""


@fault("uncached-parity", why_not=_why_not, routes=("uncached",))
def rounded_without_cache(patient: Patient) -> Iterator[None]:
    """Round the last layer's MLP to bfloat16 in forwards without a cache, but for those of the reference route."""
    shares_keys = _shares_keys(patient)

    def round_off(fed: Fed, output: torch.Tensor) -> torch.Tensor:
        # the reference route runs uncached and eager, but where layers share keys and values it takes a cache
        sick = fed.uncached and (shares_keys or compat.attention_backend(fed.decoder) != "eager")
        return output.to(torch.bfloat16).to(output.dtype) if sick else output

    with mlp_edited(patient, round_off):
        yield
