"""Beams go on with the keys of other beams: the cache is not put into their order."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor import compat
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient


@fault("beams-parity", routes=("beams",))
def beams_not_reordered(patient: Patient) -> Iterator[None]:
    """Let reorder_cache do nothing."""
    with compat.cache_method_wrapped("reorder_cache", lambda _original: lambda _cache, _order: None):
        yield
