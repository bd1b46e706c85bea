"""Norms do not go up to float32 on their way (transformers PR 29402).

It shows as an epsilon: bfloat16 holds 1e-6 to 0.4 % only, so that another one acts.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gemma_doctor.faults import fault
from gemma_doctor.faults._numerics import norms_computed, norms_of
from gemma_doctor.loading import Patient


def _why_not(patient: Patient) -> str:
    return "" if norms_of(patient) else "its norms are of no form that is known here"


@fault("rms-norm-eps", why_not=_why_not)
def norm_in_half_precision(patient: Patient) -> Iterator[None]:
    """Compute all norms in bfloat16."""
    with norms_computed(norms_of(patient), lambda norm, fed: norm(fed.to(torch.bfloat16))):
        yield
