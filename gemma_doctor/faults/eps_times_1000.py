"""Every norm runs with a thousand times its epsilon."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.capture.model_facts import epsilon_attribute, norm_modules
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient


@fault("rms-norm-eps")
def eps_times_1000(patient: Patient) -> Iterator[None]:
    """Multiply the epsilon of all norm modules by 1,000."""
    norms = [module for model in patient.models for _, module in norm_modules(model)]
    changed = [(module, name, getattr(module, name)) for module in norms if (name := epsilon_attribute(module))]
    for module, name, eps in changed:
        setattr(module, name, eps * 1000)
    try:
        yield
    finally:
        for module, name, eps in changed:
            setattr(module, name, eps)
