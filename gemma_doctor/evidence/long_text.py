"""One long real text: what its tokens cost the model around the window edge, and which facts of it are recalled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemma_doctor.evidence.arrays import Floats
from gemma_doctor.evidence.running import Crash

LONG_TEXT = "long text"  # name of its pass


@dataclass(frozen=True)
class Region:
    """Neighbouring tokens of the text whose loss was measured, in nats.

    Attributes:
        name: where they lie, in words: "before the edge", "after the edge", "beyond twice the edge".
        first: column of the first of them.
        cached: under the chunked run with a cache, shape (n,).
        reference: on the reference route, shape (n,); None where that does not reach.
        control: in a text that holds BOS and only so much before them that it lies below the edge, shape (n,); None
            before it, and where the control run crashed.
    """

    name: str
    first: int
    cached: Floats
    reference: Floats | None
    control: Floats | None

    @property
    def last(self) -> int:
        """Column of the last of them."""
        return self.first + len(self.cached) - 1


@dataclass(frozen=True)
class Fact:
    """A fact that stands somewhere in the text and is asked for at its end.

    Attributes:
        distance: tokens from where its answer stands to where it is asked for.
        cached: log-probability of its answer among all answers, in nats, under the chunked run with a cache.
        reference: on the reference route; None where that does not reach.
    """

    distance: int
    cached: float
    reference: float | None


@dataclass(frozen=True)
class StepByStep:
    """What plain generation says where the chunked run and the reference route differ most; measured only then.

    Attributes:
        column: of the token.
        steps: decode steps that led to it.
        cached, reference: nats, as of a Region or a Fact.
        plain: what generate() gave: one prefill, then these steps.
    """

    column: int
    steps: int
    cached: float
    reference: float
    plain: float

    def is_off(self, most: float) -> bool:
        """Plain generation as well differs from the reference route by more than `most` nats, or is no number."""
        return not abs(self.plain - self.reference) <= most


@dataclass(frozen=True)
class LongText:
    """The text, and what was measured over it.

    Attributes:
        pass_name: how findings name it.
        source: of the text, in words.
        length: tokens, the questions at its end included.
        window: W in force, None if the model has none.
        edge: length that the regions lie around: W, or a smaller window that the preset has which the weights come
            from (its own where the model has none), or of a window that no text here fills, a usual one; None where
            neither has a window.
        chunk: tokens per forward of the cached run.
        regions: in order; empty if the text has no room for them.
        facts: in order of distance; empty if they cannot be written with this tokenizer.
        noise: how far losses of one token on two healthy routes may lie apart, in nats.
        no_reference: why the reference route was not run over all of it, "" if it was.
        no_facts: why there are no facts, "" if there are.
        crash: the exception that ended the cached run; nothing is measured then.
        text_again, facts_again: see StepByStep; None where nothing differs.
    """

    pass_name: str
    source: str
    length: int
    window: int | None
    edge: int | None
    chunk: int
    regions: tuple[Region, ...]
    facts: tuple[Fact, ...]
    noise: float
    no_reference: str = ""
    no_facts: str = ""
    crash: Crash | None = None
    text_again: StepByStep | None = None
    facts_again: StepByStep | None = None

    @property
    def figures(self) -> dict[str, float]:
        """Mean loss of each region under the chunked run, nats a token, by the names of FIGURES; finite ones alone."""
        means = {f"loss_{one.name.replace(' ', '_')}": float(one.cached.mean()) for one in self.regions}
        return {name: mean for name, mean in means.items() if np.isfinite(mean)}
