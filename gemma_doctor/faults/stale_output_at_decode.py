"""The last layer's MLP puts out at a decode step what it put out at the step before: a buffer that is not refilled."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import late_at_decode
from gemma_doctor.loading import Patient


@fault("cache-parity")
def stale_output_at_decode(patient: Patient) -> Iterator[None]:
    """Let the last layer's MLP be one decode step late."""
    with late_at_decode(patient, lambda _fed, _output: True):
        yield
