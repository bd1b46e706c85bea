"""Every norm runs with a thousand times its epsilon."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._numerics import epsilons_changed
from gemma_doctor.loading import Patient


@fault("rms-norm-eps")
def eps_times_1000(patient: Patient) -> Iterator[None]:
    """Multiply the epsilon of all norm modules by 1,000."""
    with epsilons_changed(patient, lambda eps: eps * 1000):
        yield
