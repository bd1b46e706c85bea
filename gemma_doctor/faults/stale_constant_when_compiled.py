"""A compiled graph keeps an index that was right when it was made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch

from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient


@fault("compiled-parity", routes=("compiled",))
def stale_constant_when_compiled(patient: Patient) -> Iterator[None]:
    """Turn the last layer's MLP by one channel in compiled code."""

    def turn(_module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor:
        return output.roll(1, dims=-1) if torch.compiler.is_compiling() else output

    with ExitStack() as stack:
        for model in patient.models:
            stack.callback(text_decoder(model).layers[-1].mlp.register_forward_hook(turn).remove)
        yield
