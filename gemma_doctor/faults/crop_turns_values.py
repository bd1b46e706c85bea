"""Cropping a cache cuts keys at their end and the values of one layer at their start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor import compat
from gemma_doctor.faults import fault
from gemma_doctor.faults._caches import no_cache_layers
from gemma_doctor.loading import Patient


@fault("crop-parity", why_not=no_cache_layers, routes=("crop",))
def crop_turns_values(patient: Patient) -> Iterator[None]:
    """Move the last layer's values by one token whenever a cache is cropped."""

    def turning(crop: Any) -> Any:
        def turned(cache: Any, *args: Any, **kwargs: Any) -> None:
            crop(cache, *args, **kwargs)
            compat.turn_values(cache)

        return turned

    with compat.cache_method_wrapped("crop", turning):
        yield
