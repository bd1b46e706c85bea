"""How it should be, from papers and arithmetic, never from the code under test. No torch here."""

from __future__ import annotations

from gemma_doctor.oracle.cache import ITEM_BYTES, UNITS, KvLayer, kv_layers, latent, size_in_words
from gemma_doctor.oracle.masks import Rule, causal, positions, real_keys, sliding, visible
from gemma_doctor.oracle.numbers import (
    EPSILON,
    FINDING_FLOORS,
    FLIP_FLOORS,
    LARGEST_FLOAT32,
    LARGEST_THETA,
    agree,
    contradict,
    same,
    usable_epsilon,
    usable_theta,
)
from gemma_doctor.oracle.rotation import inverse_frequencies

__all__ = [
    "EPSILON",
    "FINDING_FLOORS",
    "FLIP_FLOORS",
    "ITEM_BYTES",
    "LARGEST_FLOAT32",
    "LARGEST_THETA",
    "UNITS",
    "KvLayer",
    "Rule",
    "agree",
    "causal",
    "contradict",
    "inverse_frequencies",
    "kv_layers",
    "latent",
    "positions",
    "real_keys",
    "same",
    "size_in_words",
    "sliding",
    "usable_epsilon",
    "usable_theta",
    "visible",
]
