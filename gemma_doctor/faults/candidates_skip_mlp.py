"""Verifying a drafter's tokens, the last layer leaves its MLP out."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import skipped_at_verifying
from gemma_doctor.loading import Patient


@fault("assisted-parity", routes=("assisted",))
def candidates_skip_mlp(patient: Patient) -> Iterator[None]:
    """Drop the last layer's MLP where a drafter's tokens are verified."""
    with skipped_at_verifying(patient, lambda running: running.get("assistant_model") is not None):
        yield
