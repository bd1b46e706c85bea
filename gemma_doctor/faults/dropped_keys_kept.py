"""A sliding cache layer keeps the memory of every key that it has dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor import compat
from gemma_doctor.evidence import SLIDING
from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import no_layers_that_drop_keys
from gemma_doctor.finding import Severity
from gemma_doctor.loading import Patient


@fault(
    "cache-growth",
    why_not=no_layers_that_drop_keys,
    severity=Severity.WARNING,
)
def dropped_keys_kept(patient: Patient) -> Iterator[None]:
    """Let the first sliding layer of every cache hold its keys as a view of all that it has seen."""
    layer = compat.layer_kinds(compat.text_config(patient.model)).index(SLIDING)

    def keep(update: compat.CacheUpdate) -> Any:
        if update.layer == layer:
            compat.keep_dropped_keys(update.cache, layer)
        return update.handed

    with compat.cache_updates_edited(keep):
        yield
