"""Faults of what modules compute: where the library keeps the numbers and activations that they change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gemma_doctor.undone import attributes_set, tensors_set

if TYPE_CHECKING:
    import torch

ATTENTION_SOFTCAP = "attn_logit_softcapping"
SCORE_SCALE = "scaling"


def has_attention_softcap(attention: Any) -> bool:
    """An attention module caps its scores."""
    return getattr(attention, ATTENTION_SOFTCAP, None) is not None


@contextmanager
def without_attention_softcap(attention: Any) -> Iterator[None]:
    """Let an attention module hand no cap to its attention function."""
    with attributes_set([(attention, ATTENTION_SOFTCAP, None)]):
        yield


def caps_logits(config: Any) -> bool:
    """A text config has the logits capped."""
    return getattr(config, "final_logit_softcapping", None) is not None


def score_scale(attention: Any) -> float | None:
    """What an attention module multiplies its scores by; None where it keeps that in no attribute (Gemma 3n, 4.57)."""
    return getattr(attention, SCORE_SCALE, None)


@contextmanager
def score_scale_set(attention: Any, scale: float) -> Iterator[None]:
    """Let an attention module multiply its scores by something else."""
    with attributes_set([(attention, SCORE_SCALE, scale)]):
        yield


def scale_buffers(decoder: Any) -> list[Any]:
    """What the embeddings of a text decoder are multiplied by, as far as it is kept in buffers."""
    return [buffer for name, buffer in decoder.named_buffers() if name.split(".")[-1] == "embed_scale"]


def tanh_gelus(decoder: Any) -> list[tuple[Any, str]]:
    """(parent, name) of the modules that compute the tanh approximation of GELU."""
    from transformers.activations import ACT2FN

    kind = type(ACT2FN["gelu_pytorch_tanh"])
    return [
        (parent, name)
        for parent in decoder.modules()
        for name, child in parent.named_children()
        if isinstance(child, kind)
    ]


def initial_spread(config: Any) -> float:
    """Standard deviation that weights are drawn with before training."""
    return float(config.initializer_range)


@contextmanager
def rotary_table_replaced(decoder: Any, name: str, frequencies: torch.Tensor, factor: float) -> Iterator[None]:
    """Let a decoder's rotary buffer, and what is kept beside it, be as they were built for other parameters.

    Args:
        decoder: the text decoder.
        name: of its buffer of inverse frequencies.
        frequencies: what the buffer, and the copy that it is reset from, hold instead.
        factor: on cos and sin.
    """
    path, _, buffer = name.rpartition(".")
    module, kind = decoder.get_submodule(path), buffer.removesuffix("inv_freq").removesuffix("_")
    names = (buffer, buffer.replace("inv_freq", "original_inv_freq"))
    tensors = [getattr(module, one) for one in names if hasattr(module, one)]
    # dynamic and longrope frequencies would be computed again in every forward
    rope_type = {**module.rope_type, kind: "default"} if isinstance(module.rope_type, dict) else "default"
    numbers = [(module, buffer.replace("inv_freq", "attention_scaling"), factor), (module, "rope_type", rope_type)]
    with tensors_set([(tensor, frequencies) for tensor in tensors]), attributes_set(numbers):
        yield
