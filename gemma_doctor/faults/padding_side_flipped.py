"""A wrapper of generate() leaves the tokenizer padding on the right, so that the second batch is padded wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from gemma_doctor.faults import fault
from gemma_doctor.faults._tokens import no_tokenizer, tokenizer_changed
from gemma_doctor.loading import Patient
from gemma_doctor.undone import method_replaced


def _why_not(patient: Patient) -> str:
    if patient.tokenizer is None:
        return no_tokenizer(patient)
    if patient.tokenizer.padding_side == "right":
        return "its tokenizer pads on the right already"
    bidirectional = not any(getattr(one, "is_causal", True) for one in patient.model.modules())
    return "it does not generate" if bidirectional else ""


@fault("padding-side", why_not=_why_not)
def padding_side_flipped(patient: Patient) -> Iterator[None]:
    """Let generate() leave the tokenizer padding on the right."""
    with tokenizer_changed(patient, lambda tokenizer: None), ExitStack() as wrapped:
        for model in patient.models:
            wrapped.enter_context(method_replaced(model, "generate", _flipping(model.generate, patient)))
        yield


def _flipping(generate: Any, patient: Patient) -> Any:
    def flipping(*args: Any, **kwargs: Any) -> Any:
        try:
            return generate(*args, **kwargs)
        finally:
            patient.tokenizer.padding_side = "right"  # type: ignore[union-attr]

    return flipping
