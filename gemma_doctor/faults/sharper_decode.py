"""One layer computes its decode steps with another scale than its prompts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor.faults import fault
from gemma_doctor.faults._kernels import Kernel, kernel_edited
from gemma_doctor.loading import Patient


@fault("decode-parity")
def sharper_decode(patient: Patient) -> Iterator[None]:
    """Scale the queries of one layer by 1.2 wherever a single one is fed."""

    def sharper(kernel: Kernel, named: dict[str, Any]) -> Any:
        scale = 1.2 if named["query"].shape[2] == 1 else 1.0
        return kernel(**{**named, "query": named["query"] * scale})

    with kernel_edited(patient, sharper):
        yield
