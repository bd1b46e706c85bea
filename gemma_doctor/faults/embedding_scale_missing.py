"""Embeddings reach the first layer as they are stored, where the family multiplies them by sqrt(hidden_size)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from gemma_doctor import compat
from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient


def _scale(model: Any) -> float:
    return compat.embedding_scale(text_decoder(model).get_input_embeddings(), compat.text_config(model))


def _why_not(patient: Patient) -> str:
    return "" if _scale(patient.model) != 1 else "its embeddings are not multiplied by anything"


@fault("embedding-scale", why_not=_why_not)
def embedding_scale_missing(patient: Patient) -> Iterator[None]:
    """Divide what the embedding of the ids puts out by its scale."""

    def unscaled(scale: float) -> Any:
        return lambda _module, _args, output: output / scale

    with ExitStack() as stack:
        for model in patient.models:
            embedding = text_decoder(model).get_input_embeddings()
            stack.callback(embedding.register_forward_hook(unscaled(_scale(model))).remove)
        yield
