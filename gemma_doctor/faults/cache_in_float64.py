"""The cache keeps keys and values in float64: the output is the same, and the memory is gone at half the context."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from gemma_doctor import compat
from gemma_doctor.capture.hooks import handed_cache, hooked
from gemma_doctor.faults import attention_of, fault
from gemma_doctor.faults._caches import no_cache_layers
from gemma_doctor.finding import Severity
from gemma_doctor.loading import Patient


@fault("kv-budget", why_not=no_cache_layers, severity=Severity.WARNING)
def cache_in_float64(patient: Patient) -> Iterator[None]:
    """Let every layer of every cache store float64."""

    with contextlib.ExitStack() as changed:
        wider: dict[int, Any] = {}  # the layers are held so that no address is used twice

        def widen(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            cache = handed_cache(args, kwargs)
            for layer in [] if cache is None else [one for one in cache.layers if id(one) not in wider]:
                # a cache that makes its layers as it is filled has this one only at the next forward
                changed.enter_context(compat.storing_float64(layer))
                wider[id(layer)] = layer

        with hooked(attention_of(patient), widen):
            yield
