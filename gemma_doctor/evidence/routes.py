"""Routes: the logits of the same tokens, computed another way, held against the reference route."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemma_doctor.evidence.arrays import Bools, Floats, Ints
from gemma_doctor.evidence.running import Crash

# What a route gives to compare, and what a difference is.
LOGITS = "logits"  # next-token logits: the largest difference of one position
CHOICES = "choices"  # tokens alone: how far below the reference's best token each chosen one lies
SCORE = "score"  # log-probability of the whole continuation: its difference from the reference's


@dataclass(frozen=True)
class RouteCase:
    """One text on one route.

    Attributes:
        name: of the text and the way, e.g. "prompt W-8", "prompt W+1, chunks of 5, row 1".
        compared: LOGITS, CHOICES or SCORE.
        window: W in force, None if the model has none.
        positions: the tokens, counted without pads, whose prediction was compared; shape (n,). The prediction of token
            t is what came out at token t-1.
        deviation: how far each lies from the reference, in logits, shape (n,).
        flips: another token comes first, and the reference tells the two apart by more than 2 floors, shape (n,).
        floor: noise floor in logits, of this text.
        finite: no NaN or infinity among what came out.
        pass_name: the recorded pass of `Trace` that it was read off, "" if it ran for itself.
        crash: the exception that ended it; nothing is compared then.
        first_layer: first layer whose hidden states leave the reference's; looked for only where the logits do, None
            if none was found or nothing was looked for.
        first_layer_at: the first token at which they do.
        compiled_at: tokens whose decode steps had graphs compiled, ascending; of compiled routes.
    """

    name: str
    compared: str
    window: int | None
    positions: Ints
    deviation: Floats
    flips: Bools
    floor: float
    finite: bool = True
    pass_name: str = ""
    crash: Crash | None = None
    first_layer: int | None = None
    first_layer_at: int | None = None
    compiled_at: tuple[int, ...] = ()

    def beyond(self, floors: float) -> Bools:
        """Which positions lie farther than that many floors from the reference; shape (n,)."""
        far: Bools = ~(self.deviation <= floors * self.floor)  # NaN is far
        return far

    @property
    def worst(self) -> float:
        """Largest deviation; 0 where nothing was compared."""
        return float(np.max(self.deviation, initial=0.0))


@dataclass(frozen=True)
class RouteRun:
    """Everything that was run on one route.

    Attributes:
        route: its id.
        title: what it is, in words, e.g. "step by step with the library's own cache".
        condition: who takes it: "if you use assisted decoding".
        declared: it is in use: a fault of it is an error, else a warning with the condition.
        cases: in the order in which they ran.
        right: ways that give the right logits where this one does not, measured in this run: "use_cache=False".
            Looked for only where a case leaves the reference.
        stand_in: it ran on a skeleton of the subject, since nobody takes it and nothing about it depends on weights.
    """

    route: str
    title: str
    condition: str
    declared: bool
    cases: tuple[RouteCase, ...]
    right: tuple[str, ...] = ()
    stand_in: bool = False
