"""One layer computes its decode steps with another scale than its prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from gemma_doctor import compat
from gemma_doctor.capture.readout import named_arguments
from gemma_doctor.faults import fault, one_attention_of
from gemma_doctor.loading import Patient


@fault("decode-parity")
def sharper_decode(patient: Patient) -> Iterator[None]:
    """Scale the queries of one layer by 1.2 wherever a single one is fed."""

    def scaling(module: Any) -> Callable[..., Any]:
        def wrap(kernel: Callable[..., Any]) -> Callable[..., Any]:
            def sharper(*args: Any, **kwargs: Any) -> Any:
                named = named_arguments(args, kwargs)
                if named["module"] is module and named["query"].shape[2] == 1:
                    named["query"] = named["query"] * 1.2
                return kernel(**named)

            return sharper

        return wrap

    with ExitStack() as wrapped:
        for model in patient.models:
            module, _ = one_attention_of(model)
            name, backend = type(module).__module__, compat.attention_backend(model)
            wrapped.enter_context(compat.attention_function_wrapped(name, backend, scaling(module)))
        yield
