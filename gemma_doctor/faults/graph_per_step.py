"""A counter of the module's own is taken for a constant of the compiled graph (transformers issue 44609)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.faults import fault
from gemma_doctor.finding import Severity
from gemma_doctor.loading import Patient


@fault("recompilation", severity=Severity.WARNING, routes=("compiled",))
def graph_per_step(patient: Patient) -> Iterator[None]:
    """Let the last layer's MLP count its forwards in an integer of its own."""

    def count(module: Any, _args: Any, _output: Any) -> None:
        module.forwards_seen += 1

    with ExitStack() as stack:
        for model in patient.models:
            mlp = text_decoder(model).layers[-1].mlp
            mlp.forwards_seen = 0
            stack.callback(delattr, mlp, "forwards_seen")
            stack.callback(mlp.register_forward_hook(count).remove)
        yield
