"""The layers of a static cache cannot be built (transformers PR 33619)."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor import compat
from gemma_doctor.faults import fault, no_window
from gemma_doctor.loading import Patient


@fault(
    "static-cache-parity",
    why_not=lambda patient: no_window(patient) or compat.why_no_cache_layers(),
    routes=("static-cache",),
)
def static_cache_cannot_be_built(patient: Patient) -> Iterator[None]:
    """Let the constructor of static sliding layers take no arguments."""
    with compat.static_sliding_layers_unbuildable():
        yield
