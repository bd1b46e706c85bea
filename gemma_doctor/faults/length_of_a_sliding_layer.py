"""The length of a sliding cache layer is taken from its keys, and stands still once they fill the window."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor import compat
from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import no_layers_that_drop_keys
from gemma_doctor.loading import Patient


@fault("past-key-length", why_not=no_layers_that_drop_keys)
def length_of_a_sliding_layer(patient: Patient) -> Iterator[None]:
    """Let sliding cache layers report how many keys they hold, not how many they have seen."""
    with compat.sliding_layers_reporting_held():
        yield
