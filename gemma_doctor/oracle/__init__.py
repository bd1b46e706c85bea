"""How it should be, from papers and arithmetic, never from the code under test. No torch here."""

from __future__ import annotations

from gemma_doctor.oracle.cache import ITEM_BYTES, UNITS, KvLayer, kv_layers, latent, size_in_words
from gemma_doctor.oracle.lengths import (
    FOLLOW_THE_LENGTH,
    Trained,
    far_claim,
    is_scaled,
    lengths_apart,
    live_frequencies,
    made_for,
    ntk_theta,
    reach,
    stretch,
    trained,
)
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
from gemma_doctor.oracle.spelling import misspelt

__all__ = [
    "EPSILON",
    "FINDING_FLOORS",
    "FLIP_FLOORS",
    "FOLLOW_THE_LENGTH",
    "ITEM_BYTES",
    "LARGEST_FLOAT32",
    "LARGEST_THETA",
    "UNITS",
    "KvLayer",
    "Rule",
    "Trained",
    "agree",
    "causal",
    "contradict",
    "far_claim",
    "inverse_frequencies",
    "is_scaled",
    "kv_layers",
    "latent",
    "lengths_apart",
    "live_frequencies",
    "made_for",
    "misspelt",
    "ntk_theta",
    "positions",
    "reach",
    "real_keys",
    "same",
    "size_in_words",
    "sliding",
    "stretch",
    "trained",
    "usable_epsilon",
    "usable_theta",
    "visible",
]
