"""One cache layer reports that it has seen one token less than it was fed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from gemma_doctor import compat
from gemma_doctor.capture.hooks import handed_cache, hooked
from gemma_doctor.faults import fault, last_attention_of
from gemma_doctor.faults._caches import no_cache_layers
from gemma_doctor.loading import Patient


@fault("past-key-length", why_not=no_cache_layers)
def cache_length_wrong(patient: Patient) -> Iterator[None]:
    """Let layer 0 of every cache report a length that is one short."""

    with contextlib.ExitStack() as changed:
        lying: set[int] = set()

        def shorten(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            cache = handed_cache(args, kwargs)
            if cache is not None and cache.layers and id(cache.layers[0]) not in lying:
                # undone at the end: generate() keeps some caches on the model and uses them again (4.57)
                changed.enter_context(compat.reporting_one_less(cache.layers[0]))
                lying.add(id(cache.layers[0]))

        # When the last module is entered, layer 0 is there (caches make their layers as they are filled) and has stored
        # this forward's keys: nothing is wrong but what it reports.
        with hooked(last_attention_of(patient), shorten):
            yield
