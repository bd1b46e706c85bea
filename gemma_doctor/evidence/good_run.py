"""Figures of this run beside those that a baseline holds of a good one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# What must be the same in two runs for a figure of theirs to be comparable. The release of transformers is not asked
# of a loss: that another one must not change it is what is looked at.
SAME_TEXT = ("device", "dtype", "window", "text", "text_length")
SAME_WORK = (
    *("transformers", "torch", "machine", "device", "dtype", "backend"),
    *("window", "prompt_length", "generated"),
)


@dataclass(frozen=True)
class FigureKind:
    """What is known of a figure before it is measured.

    Attributes:
        unit: of its value.
        more_is_worse: else less is.
        absolute_tolerance, relative_tolerance: what a baseline is written with, in the unit or as a share of the value;
            one of them is None.
        depends_on: conditions that two runs must share.
    """

    unit: str
    more_is_worse: bool
    absolute_tolerance: float | None
    relative_tolerance: float | None
    depends_on: tuple[str, ...]


LOSS = FigureKind("nats a token", True, 0.02, None, SAME_TEXT)
FIGURES: dict[str, FigureKind] = {
    "loss_before_the_edge": LOSS,
    "loss_after_the_edge": LOSS,
    "loss_beyond_twice_the_edge": LOSS,
    "tokens_per_second": FigureKind("tokens/s", False, None, 0.5, SAME_WORK),
    "peak_memory_mb": FigureKind("MB", True, None, 0.25, SAME_WORK),
}


@dataclass(frozen=True)
class RecordedFigure:
    """A figure of a good run; one of the tolerances is None.

    Attributes:
        value: in the unit of its kind.
        absolute_tolerance: in the same unit.
        relative_tolerance: as a share of the value.
    """

    value: float
    absolute_tolerance: float | None = None
    relative_tolerance: float | None = None

    @property
    def tolerance(self) -> float:
        """In the unit of the value."""
        if self.absolute_tolerance is not None:
            return self.absolute_tolerance
        return abs(self.value) * (self.relative_tolerance or 0.0)


@dataclass(frozen=True)
class GoodRun:
    """Figures of this run and of the one that a baseline was written in.

    Attributes:
        file: the baseline, as it was named.
        recorded: by name, of FIGURES.
        measured: in this run, by the same names; what could not be measured is not there.
        differs: by name: why the two cannot be compared, e.g. "device cpu, in the baseline cuda:0".
    """

    file: str
    recorded: Mapping[str, RecordedFigure]
    measured: Mapping[str, float]
    differs: Mapping[str, str]
