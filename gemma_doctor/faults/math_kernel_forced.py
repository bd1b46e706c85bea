"""Only torch's math kernel is allowed in this process."""

from __future__ import annotations

from collections.abc import Iterator

from torch.nn.attention import SDPBackend, sdpa_kernel

from gemma_doctor.faults import fault
from gemma_doctor.finding import Severity
from gemma_doctor.loading import Patient


def _why_not(patient: Patient) -> str:
    return "" if patient.backend == "sdpa" else f"{patient.backend} does not choose among torch's kernels"


@fault("attention-backend", why_not=_why_not, severity=Severity.WARNING)
def math_kernel_forced(patient: Patient) -> Iterator[None]:
    """Forbid torch its fused attention kernels."""
    with sdpa_kernel(SDPBackend.MATH):
        yield
