"""A norm kernel made for other families stands in: it takes the weight where Gemma takes 1 + weight (Liger-Kernel
issue 74).
"""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._numerics import norms_computed, norms_of
from gemma_doctor.loading import Patient


def _why_not(patient: Patient) -> str:
    return "" if any(one.one_plus for one in norms_of(patient)) else "its norms multiply by the weight itself"


@fault("reference-parity", why_not=_why_not)
def norm_without_one(patient: Patient) -> Iterator[None]:
    """Multiply by the weight alone in all norms that multiply by 1 + weight."""
    norms = [one for one in norms_of(patient) if one.one_plus]
    with norms_computed(norms, lambda norm, fed: norm.of_weight_alone()(fed.float())):
        yield
