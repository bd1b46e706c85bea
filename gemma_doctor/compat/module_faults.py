"""Faults of what modules compute: where the library keeps the numbers and activations that they change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ATTENTION_SOFTCAP = "attn_logit_softcapping"
SCORE_SCALE = "scaling"


def has_attention_softcap(attention: Any) -> bool:
    """An attention module caps its scores."""
    return getattr(attention, ATTENTION_SOFTCAP, None) is not None


@contextmanager
def without_attention_softcap(attention: Any) -> Iterator[None]:
    """Let an attention module hand no cap to its attention function."""
    with _set(attention, ATTENTION_SOFTCAP, None):
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
    with _set(attention, SCORE_SCALE, scale):
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


@contextmanager
def _set(module: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)
