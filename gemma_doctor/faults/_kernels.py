"""Changes what the attention function computes for one layer of each model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from gemma_doctor import compat
from gemma_doctor.capture.readout import named_arguments
from gemma_doctor.faults import one_attention_of
from gemma_doctor.loading import Patient

Kernel = Callable[..., Any]


@contextmanager
def kernel_edited(patient: Patient, compute: Callable[[Kernel, dict[str, Any]], Any]) -> Iterator[None]:
    """Let one layer of every model compute its attention otherwise.

    Args:
        patient: whose models are changed.
        compute: from the attention function and its arguments by name to what is put out instead.
    """

    def editing(module: Any) -> Callable[[Kernel], Kernel]:
        def wrap(kernel: Kernel) -> Kernel:
            def edited(*args: Any, **kwargs: Any) -> Any:
                named = named_arguments(args, kwargs)
                return compute(kernel, named) if named["module"] is module else kernel(*args, **kwargs)

            return edited

        return wrap

    with ExitStack() as wrapped:
        for model in patient.models:
            module = one_attention_of(model)
            name, backend = type(module).__module__, compat.attention_backend(model)
            wrapped.enter_context(compat.attention_function_wrapped(name, backend, editing(module)))
        yield
