"""The logits come straight from the output head, as from a fused head that knows no soft-capping."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from gemma_doctor import compat
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient

if TYPE_CHECKING:
    import torch


def _why_not(patient: Patient) -> str:
    return "" if compat.caps_logits(compat.text_config(patient.model)) else "its logits are not capped"


@fault("softcap", why_not=_why_not)
def logits_softcap_dropped(patient: Patient) -> Iterator[None]:
    """Return the logits as they are before they are capped."""
    uncapped: list[torch.Tensor] = []

    def keep(_head: Any, _args: Any, logits: torch.Tensor) -> None:
        uncapped[:] = [logits]

    def give_back(_model: Any, _args: Any, output: Any) -> Any:
        output.logits = uncapped.pop()
        return output

    with ExitStack() as stack:
        for model in patient.models:
            stack.callback(model.get_output_embeddings().register_forward_hook(keep).remove)
            stack.callback(model.register_forward_hook(give_back).remove)
        yield
