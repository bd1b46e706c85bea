"""Verifying tokens that were looked up in the prompt, the last layer leaves its MLP out."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import skipped_at_verifying
from gemma_doctor.faults._generation import asked_for
from gemma_doctor.loading import Patient


@fault("prompt-lookup-parity", routes=("prompt-lookup",))
def lookup_skips_mlp(patient: Patient) -> Iterator[None]:
    """Drop the last layer's MLP where looked-up tokens are verified."""
    with skipped_at_verifying(patient, lambda running: bool(asked_for(running, "prompt_lookup_num_tokens"))):
        yield
