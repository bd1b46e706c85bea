"""The layers of a static cache cannot be built (transformers PR 33619)."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor import compat
from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import no_window_in_cache
from gemma_doctor.loading import Patient


@fault(
    "static-cache-parity",
    why_not=no_window_in_cache,
    routes=("static-cache",),
)
def static_cache_cannot_be_built(patient: Patient) -> Iterator[None]:
    """Let the constructor of static sliding layers take no arguments."""
    with compat.static_sliding_layers_unbuildable():
        yield
