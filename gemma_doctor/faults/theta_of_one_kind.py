"""The live inverse frequencies of one layer kind are built with another theta; the config still shows the right one."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.capture.model_facts import rotary_tensors
from gemma_doctor.evidence import SLIDING
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient
from gemma_doctor.undone import tensors_set


@fault("rope-theta")
def theta_of_one_kind(patient: Patient) -> Iterator[None]:
    """Raise theta to the power 1.5 in the rotary buffers of the sliding layers, or of all where one serves all."""
    changed = []
    for model in patient.models:
        tensors = rotary_tensors(model)
        kinds = {kind for _, kind, _ in tensors}
        for _, kind, tensor in tensors:
            if kind == SLIDING or SLIDING not in kinds:
                changed.append((tensor, tensor.pow(1.5)))
    with tensors_set(changed):
        yield
