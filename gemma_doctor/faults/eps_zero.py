"""Every norm runs without an epsilon: float16 makes 0 of one below 3e-8."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._numerics import epsilons_changed
from gemma_doctor.loading import Patient


@fault("rms-norm-eps")
def eps_zero(patient: Patient) -> Iterator[None]:
    """Set the epsilon of all norm modules to 0."""
    with epsilons_changed(patient, lambda eps: 0.0):
        yield
