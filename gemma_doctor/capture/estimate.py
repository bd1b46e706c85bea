"""How long runs will take, in seconds, where that is known.

Measured on two cores of a CPU in float32: 100 GFLOP/s in a prefill, in attention over a masked cache a third of that; a
decode step reads all weights, at 15 GB/s. A skeleton takes seconds; half precision is slow on a CPU, and nobody has
measured how slow; a GPU takes next to no time.
"""

from __future__ import annotations

from typing import Any

from gemma_doctor.capture.model_facts import attention_modules, text_decoder
from gemma_doctor.evidence import FULL, ModelFacts
from gemma_doctor.loading import Patient

FLOPS = 100e9
BYTES = 15e9
MASKED = 3.5  # how many times as long an operation of attention takes over a masked cache


def seconds(patient: Patient, prefill: int, decode: int) -> float | None:
    """Of so many tokens in prefills and so many decode steps; None where it is not known."""
    if not _known(patient):
        return None
    weights = sum(weight.numel() for weight in patient.model.parameters())
    spent: float = prefill * 2 * _layers(patient.model) / FLOPS + decode * 4 * weights / BYTES
    return spent


def seconds_of_text(patient: Patient, facts: ModelFacts, length: int, more: int, scored: int) -> float | None:
    """Of one long text; None where it is not known.

    Args:
        length: tokens in chunks with a cache.
        more: tokens in other runs.
        scored: tokens that meet the head.
    """
    if not _known(patient):
        return None
    modules = attention_modules(patient.model)
    kinds = facts.loaded.layer_kinds or ()
    full = [modules[index] for index, kind in enumerate(kinds) if kind == FULL and index in modules]
    layers = 2 * _layers(patient.model) * (length + more)
    head = 2 * patient.model.get_input_embeddings().weight.numel() * scored
    attention = MASKED * length * length * sum(2 * one.o_proj.in_features for one in full)
    spent: float = (layers + head + attention) / FLOPS
    return spent


def _known(patient: Patient) -> bool:
    return patient.subject.weights == "real" and patient.device == "cpu" and patient.dtype == "float32"


def _layers(model: Any) -> int:
    """Weights of all layers."""
    return sum(weight.numel() for weight in text_decoder(model).layers.parameters())
