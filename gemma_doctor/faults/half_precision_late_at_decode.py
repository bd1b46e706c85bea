"""In bfloat16 the last layer's MLP is one decode step late: a kernel of its own, with a buffer that is not refilled."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.faults import fault
from gemma_doctor.faults._forwards import late_at_decode
from gemma_doctor.loading import Patient


@fault("bfloat16-parity", routes=("bfloat16",))
def half_precision_late_at_decode(patient: Patient) -> Iterator[None]:
    """Let the last layer's MLP be one decode step late in bfloat16."""
    with late_at_decode(patient, lambda _fed, output: output.dtype is torch.bfloat16):
        yield
