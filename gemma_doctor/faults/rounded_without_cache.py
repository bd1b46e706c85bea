"""Without a cache the last layer works in half precision: an autocast region of the training path."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.faults import attention_of, fault
from gemma_doctor.faults._forwards import Fed, mlp_edited
from gemma_doctor.loading import Patient


def _why_not(patient: Patient) -> str:
    shares_kv = any(getattr(one, "is_kv_shared_layer", False) for one in attention_of(patient))
    plain = patient.backend == "eager" and not shares_kv
    return "eager and uncached is the reference route itself" if plain else ""


@fault("uncached-parity", why_not=_why_not, routes=("uncached",))
def rounded_without_cache(patient: Patient) -> Iterator[None]:
    """Round the last layer's MLP to bfloat16 in forwards without a cache."""

    shares_kv = any(getattr(one, "is_kv_shared_layer", False) for one in attention_of(patient))

    def round_off(fed: Fed, output: torch.Tensor) -> torch.Tensor:
        # the reference route runs uncached and eager, but where layers share keys and values it takes a cache
        sick = fed.uncached and (shares_kv or fed.backend != "eager")
        return output.to(torch.bfloat16).to(output.dtype) if sick else output

    with mlp_edited(patient, round_off):
        yield
