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
from gemma_doctor.evidence.drift import Arrival, ConfigDrift, TiedHead
from gemma_doctor.evidence.effect import RopeEffect
from gemma_doctor.evidence.generations import GREEDY, OF_SERVED, Generation, Generations
from gemma_doctor.evidence.gguf import GgufFacts, GgufKey
from gemma_doctor.evidence.good_run import FIGURES, LOSS, FigureKind, GoodRun, RecordedFigure
from gemma_doctor.evidence.lengths import Lengths, Wanted
from gemma_doctor.evidence.long_text import LONG_TEXT, Fact, LongText, Region, StepByStep
from gemma_doctor.evidence.model import (
    DeviceMemory,
    LayerFacts,
    ModelFacts,
    NormFacts,
    RotaryBuffer,
)
from gemma_doctor.evidence.placed import PlacedReading, placed_readings
from gemma_doctor.evidence.profile import FlashWindow, KernelProfile, KernelRun
from gemma_doctor.evidence.rotary import RotaryRange, Turned
from gemma_doctor.evidence.routes import CHOICES, LOGITS, SCORE, RouteCase, RouteRun
from gemma_doctor.evidence.running import (
    LONG_GENERATE,
    CacheLayer,
    Crash,
    Forward,
    LayerRotation,
    PaddedBatch,
    Pass,
    Trace,
    Turn,
)
from gemma_doctor.evidence.spans import Span, place_of, spans
from gemma_doctor.evidence.tokenizers import (
    BosLosses,
    BosUse,
    BosWay,
    CutText,
    PaddedTexts,
    Pieces,
    RoundTrip,
    ShatterCost,
    StopTokens,
    Token,
    TokenizerFacts,
    TokenizerIntegrity,
    Truncation,
)

__all__ = [
    "CHOICES",
    "EMPTY_SLOT",
    "FIGURES",
    "FOREIGN",
    "FULL",
    "GREEDY",
    "LOGITS",
    "LONG_GENERATE",
    "LONG_TEXT",
    "LOSS",
    "OF_SERVED",
    "SCORE",
    "SLIDING",
    "UNRECOGNISED",
    "Advisories",
    "Advisory",
    "Arrival",
    "Bools",
    "BosLosses",
    "BosUse",
    "BosWay",
    "Bytes",
    "CacheLayer",
    "Claim",
    "Concern",
    "Config",
    "ConfigDrift",
    "ConfigFacts",
    "Crash",
    "CutText",
    "DeviceMemory",
    "Expectation",
    "Fact",
    "FigureKind",
    "FlashWindow",
    "Floats",
    "Floats32",
    "Forward",
    "Generation",
    "Generations",
    "GgufFacts",
    "GgufKey",
    "GoodRun",
    "Ints",
    "KernelCall",
    "KernelProfile",
    "KernelRun",
    "LayerFacts",
    "LayerRotation",
    "Lengths",
    "LongText",
    "MaskFacts",
    "ModelFacts",
    "NormFacts",
    "PaddedBatch",
    "PaddedTexts",
    "Pass",
    "Pieces",
    "PlacedReading",
    "Reading",
    "RecordedFigure",
    "Region",
    "RopeClaim",
    "RopeEffect",
    "RotaryBuffer",
    "RotaryRange",
    "RoundTrip",
    "RouteCase",
    "RouteRun",
    "ShatterCost",
    "Span",
    "StepByStep",
    "StopTokens",
    "TiedHead",
    "Token",
    "TokenizerFacts",
    "TokenizerIntegrity",
    "Trace",
    "Truncation",
    "Turn",
    "Turned",
    "Wanted",
    "frozen",
    "place_of",
    "placed_readings",
    "spans",
    "theta_in_words",
]
