"""What was observed: frozen, read-only, made once and shared by all checks. No torch here.

A check names the evidence it needs by parameter type: `Config`, `ModelFacts`, `TokenizerFacts`, `Trace`,
`PaddedBatch`, `Generation`. Arrays are numpy copies with the write flag off; where a torch dtype matters its name is
kept beside the array (bfloat16 is stored as float32).
"""

from __future__ import annotations

from gemma_doctor.evidence.arrays import (
    EMPTY_SLOT,
    FULL,
    SLIDING,
    UNRECOGNISED,
    Bools,
    Bytes,
    Floats,
    Ints,
    frozen,
)
from gemma_doctor.evidence.configuration import (
    Claim,
    Config,
    ConfigFacts,
    Expectation,
    RopeClaim,
    theta_in_words,
)
from gemma_doctor.evidence.model import (
    LayerFacts,
    ModelFacts,
    NormFacts,
    RotaryBuffer,
    TokenizerFacts,
)
from gemma_doctor.evidence.running import (
    CacheLayer,
    Crash,
    Forward,
    Generation,
    KernelCall,
    LayerRotation,
    MaskFacts,
    PaddedBatch,
    Pass,
    Trace,
)

__all__ = [
    "EMPTY_SLOT",
    "FULL",
    "SLIDING",
    "UNRECOGNISED",
    "Bools",
    "Bytes",
    "CacheLayer",
    "Claim",
    "Config",
    "ConfigFacts",
    "Crash",
    "Expectation",
    "Floats",
    "Forward",
    "Generation",
    "Ints",
    "KernelCall",
    "LayerFacts",
    "LayerRotation",
    "MaskFacts",
    "ModelFacts",
    "NormFacts",
    "PaddedBatch",
    "Pass",
    "RopeClaim",
    "RotaryBuffer",
    "TokenizerFacts",
    "Trace",
    "frozen",
    "theta_in_words",
]
