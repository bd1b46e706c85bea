"""Modules: what is computed in them, or kept under another name, by release."""

from __future__ import annotations

from typing import Any

from gemma_doctor.evidence import FULL, SLIDING


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
