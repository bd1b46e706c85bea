"""One head of one layer is computed without its mask: no mask shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch

from gemma_doctor import compat
from gemma_doctor.capture.readout import named_arguments
from gemma_doctor.faults import fault, one_attention_of
from gemma_doctor.loading import Patient


@fault("visible-keys")
def head_ignores_mask(patient: Patient) -> Iterator[None]:
    """Let head 0 of one layer read every key that the kernel is handed."""

    def ignoring(module: Any) -> Callable[..., Any]:
        def wrap(kernel: Callable[..., Any]) -> Callable[..., Any]:
            def half_blind(*args: Any, **kwargs: Any) -> Any:
                output, *rest = kernel(*args, **kwargs)
                named = named_arguments(args, kwargs)
                if named["module"] is not module:
                    return output, *rest
                query, key, mask = named["query"], named["key"], named["attention_mask"]
                shape = (query.shape[0], 1, query.shape[2], key.shape[2])
                if mask is None or mask.dtype is torch.bool:
                    named["attention_mask"] = torch.ones(shape, dtype=torch.bool, device=query.device)
                else:
                    named["attention_mask"] = torch.zeros(shape, dtype=mask.dtype, device=query.device)
                output = output.clone()
                output[:, :, 0] = kernel(**named)[0][:, :, 0]
                return output, *rest

            return half_blind

        return wrap

    with ExitStack() as wrapped:
        for model in patient.models:
            module, _ = one_attention_of(model)
            name, backend = type(module).__module__, compat.attention_backend(model)
            wrapped.enter_context(compat.attention_function_wrapped(name, backend, ignoring(module)))
        yield
