"""The one place that knows transformers' names, arguments and constructors by release."""

from __future__ import annotations

from gemma_doctor.compat.attention import (
    CannotWatch,
    attention_backend,
    attention_backend_set,
    attention_function_wrapped,
)
from gemma_doctor.compat.caches import (
    cache_argument,
    cache_keyword,
    cache_layers,
    forget_kept_cache,
    is_cache,
    keep_dropped_keys,
    reporting_one_less,
    returned_cache,
    storing_float64,
    turn_values,
    updates_watched,
    why_no_cache_layers,
)
from gemma_doctor.compat.configs import (
    base_value,
    experts_key,
    head_dim,
    layer_kinds,
    new_text_config,
    text_config,
    whole_config,
    window,
)
from gemma_doctor.compat.generation import end_tokens, generate
from gemma_doctor.compat.loaders import auto_class, dequantising, dtype_argument, loader_for
from gemma_doctor.compat.modules import embedding_scale, has_per_layer_embeddings, rotary_kind, scores_are_unscaled
from gemma_doctor.compat.releases import FIRST_GGUF_RELEASE, FIRST_RELEASE, reads_gguf, release, require_family

__all__ = [
    "FIRST_GGUF_RELEASE",
    "FIRST_RELEASE",
    "CannotWatch",
    "attention_backend",
    "attention_backend_set",
    "attention_function_wrapped",
    "auto_class",
    "base_value",
    "cache_argument",
    "cache_keyword",
    "cache_layers",
    "dequantising",
    "dtype_argument",
    "embedding_scale",
    "end_tokens",
    "experts_key",
    "forget_kept_cache",
    "generate",
    "has_per_layer_embeddings",
    "head_dim",
    "is_cache",
    "keep_dropped_keys",
    "layer_kinds",
    "loader_for",
    "new_text_config",
    "reads_gguf",
    "release",
    "reporting_one_less",
    "require_family",
    "returned_cache",
    "rotary_kind",
    "scores_are_unscaled",
    "storing_float64",
    "text_config",
    "turn_values",
    "updates_watched",
    "whole_config",
    "why_no_cache_layers",
    "window",
]
