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
    WHOLE_WORDS,
    agree,
    contradict,
    same,
    usable_epsilon,
    usable_theta,
)
from gemma_doctor.oracle.repetition import LAST, SHARE, repeated_tail, repetition, turns_certain
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
    "LAST",
    "SHARE",
    "UNITS",
    "WHOLE_WORDS",
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
    "repeated_tail",
    "repetition",
    "same",
    "size_in_words",
    "sliding",
    "stretch",
    "trained",
    "turns_certain",
    "usable_epsilon",
    "usable_theta",
    "visible",
]
