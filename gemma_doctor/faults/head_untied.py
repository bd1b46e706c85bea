"""The output head should be the embedding; the tie is lost, and its weights stay as they were drawn (transformers PR
43429).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gemma_doctor import compat, skeleton
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient
from gemma_doctor.undone import attributes_set


def _is_tied(model: Any) -> bool:
    return model.get_output_embeddings().weight is model.get_input_embeddings().weight


def _why_not(patient: Patient) -> str:
    if _is_tied(patient.model):
        return ""
    published = skeleton.text_config(patient.subject.published)
    if patient.subject.weights == "skeleton" and published.tie_word_embeddings:
        return "needs trained weights: a skeleton's head is never tied"
    return "its output head is not tied"


@fault("config-drift", why_not=_why_not)
def head_untied(patient: Patient) -> Iterator[None]:
    """Give the output head weights of its own, as they are drawn before training."""
    heads = [model.get_output_embeddings() for model in patient.models]
    spread = compat.initial_spread(compat.text_config(patient.model))
    drawn = torch.randn(heads[0].weight.shape, generator=torch.Generator().manual_seed(0)) * spread

    def own(head: Any) -> torch.nn.Parameter:
        return torch.nn.Parameter(drawn.to(head.weight), requires_grad=False)

    with attributes_set([(head, "weight", own(head)) for head in heads]):
        yield
