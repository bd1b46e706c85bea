"""What was observed: frozen, read-only, made once and shared by all checks. No torch here.

A check names the evidence it needs by parameter type: `Config`, `ModelFacts`, `TokenizerFacts`, `Trace`,
`PaddedBatch`, `Generations`, `KernelProfile`, `DeviceMemory`. Arrays are numpy copies with the write flag off; where a
torch dtype matters its name is kept beside the array (bfloat16 is stored as float32).
"""

from __future__ import annotations

from gemma_doctor.evidence.advisories import Advisories, Advisory, Concern
from gemma_doctor.evidence.arrays import (
    EMPTY_SLOT,
    FOREIGN,
    FULL,
    SLIDING,
    UNRECOGNISED,
    Bools,
    Bytes,
    Floats,
    Floats32,
    Ints,
    frozen,
)
from gemma_doctor.evidence.calls import KernelCall, MaskFacts, Reading
from gemma_doctor.evidence.configuration import (
    Claim,
    Config,
    ConfigFacts,
    Expectation,
    RopeClaim,
    theta_in_words,
)
from gemma_doctor.evidence.generations import GREEDY, Generation, Generations
from gemma_doctor.evidence.model import (
    DeviceMemory,
    LayerFacts,
    ModelFacts,
    NormFacts,
    RotaryBuffer,
    TokenizerFacts,
)
from gemma_doctor.evidence.placed import PlacedReading, placed_readings
from gemma_doctor.evidence.profile import FlashWindow, KernelProfile, KernelRun
from gemma_doctor.evidence.routes import CHOICES, LOGITS, SCORE, RouteCase, RouteRun
from gemma_doctor.evidence.running import (
    CacheLayer,
    Crash,
    Forward,
    LayerRotation,
    PaddedBatch,
    Pass,
    Trace,
    Turn,
)

__all__ = [
    "CHOICES",
    "EMPTY_SLOT",
    "FOREIGN",
    "FULL",
    "GREEDY",
    "LOGITS",
    "SCORE",
    "SLIDING",
    "UNRECOGNISED",
    "Advisories",
    "Advisory",
    "Bools",
    "Bytes",
    "CacheLayer",
    "Claim",
    "Concern",
    "Config",
    "ConfigFacts",
    "Crash",
    "DeviceMemory",
    "Expectation",
    "FlashWindow",
    "Floats",
    "Floats32",
    "Forward",
    "Generation",
    "Generations",
    "Ints",
    "KernelCall",
    "KernelProfile",
    "KernelRun",
    "LayerFacts",
    "LayerRotation",
    "MaskFacts",
    "ModelFacts",
    "NormFacts",
    "PaddedBatch",
    "Pass",
    "PlacedReading",
    "Reading",
    "RopeClaim",
    "RotaryBuffer",
    "RouteCase",
    "RouteRun",
    "TokenizerFacts",
    "Trace",
    "Turn",
    "frozen",
    "placed_readings",
    "theta_in_words",
]
