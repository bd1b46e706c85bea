"""Modules: what is computed in them, or kept under another name, by release."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gemma_doctor.evidence import FULL, SLIDING

if TYPE_CHECKING:
    import torch


def embedding_rows(model: Any) -> int:
    """How many ids a model's embedding has a row for. PEFT's layers stand in front of the one that knows."""
    embedding = model.get_input_embeddings()
    return int(getattr(embedding, "base_layer", embedding).num_embeddings)


def embedding_scale(embedding: Any, config: Any) -> float:
    """What an embedding is multiplied by. Up to 5.3 Gemma 1, Gemma 2 and VaultGemma do it in their forward."""
    scale = getattr(embedding, "embed_scale", None)
    if scale is not None:
        return float(scale)
    return float(config.hidden_size**0.5) if config.model_type in ("gemma", "gemma2", "vaultgemma") else 1.0


def scores_are_unscaled(attention: Any) -> bool:
    """An attention module multiplies queries and keys without 1 / sqrt(head_dim), and leaves it to trained query norms.

    Gemma 3n and Gemma 4 do. Up to 4.57 Gemma 3n keeps its scaling in no attribute.
    """
    return hasattr(attention, "q_norm") and getattr(attention, "scaling", 1.0) == 1.0


def decoder_output(hidden: torch.Tensor) -> Any:
    """What a text decoder returns that made nothing but these hidden states, shape (b, n, width).

    It is a mapping, a tuple and an object as the library's own; what a family's decoder returns besides is None.
    """
    return _output_class()(last_hidden_state=hidden)


@lru_cache
def _output_class() -> type:
    from transformers.modeling_outputs import BaseModelOutputWithPast

    class DecoderOutput(BaseModelOutputWithPast):  # type: ignore[misc]
        def __getattr__(self, name: str) -> None:
            if name.startswith("_"):
                raise AttributeError(name)

    return DecoderOutput


def has_own_keys(attention: Any) -> bool:
    """An attention module makes keys and values itself; some layers of Gemma 3n and Gemma 4 read those of another."""
    return not getattr(attention, "is_kv_shared_layer", False)


def has_per_layer_embeddings(model: Any) -> bool:
    """The decoder's layers are fed a second embedding of the ids each (Gemma 3n and 4)."""
    return any("per_layer" in name for name, _ in model.named_parameters())


def rotary_kind(name: str, decoder: Any) -> str:
    """Layer kind that a decoder's rotary buffer serves, "" if it serves all.

    The kind stands in the name ("full_attention_inv_freq", "rotary_embs.full_attention.inv_freq"). Up to 4.57 Gemma 3
    has a `rotary_emb_local` for the sliding layers, and uses its `rotary_emb` for the full ones.
    """
    for part in name.split("."):
        if part.removesuffix("_inv_freq") in (SLIDING, FULL, "chunked_attention"):
            return part.removesuffix("_inv_freq")
    if hasattr(decoder, "rotary_emb_local"):
        return SLIDING if name.startswith("rotary_emb_local.") else FULL
    return ""


def rotated(attention: Any, vectors: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor | None:
    """What an attention module's family makes of query vectors by one token's cos and sin.

    Args:
        attention: the module.
        vectors: shape (n, rotary_dim).
        cos, sin: as the module is handed them, shape (rotary_dim,) or half of that.

    Returns:
        Shape (n, rotary_dim); None if the family has no function of the usual name, or another kind of one.
    """
    apply = getattr(sys.modules[type(attention).__module__], "apply_rotary_pos_emb", None)
    if apply is None:
        return None
    heads = vectors[None, :, None]
    both = _turns_both(apply)
    try:
        turned = apply(*([heads, heads] if both else [heads]), cos[None, None], sin[None, None])
        turned = (turned[0] if both else turned)[0, :, 0]
    except Exception:  # whatever a family calls so: one that takes no such vectors is not asked
        return None
    return turned if turned.shape == vectors.shape else None


@lru_cache
def _turns_both(apply: Callable[..., Any]) -> bool:
    """Queries and keys in one call; Gemma 3n and Gemma 4 have a call for each."""
    return "k" in inspect.signature(apply).parameters
