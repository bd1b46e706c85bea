"""What rotary modules answer when they are asked for positions directly, outside any forward."""

from __future__ import annotations

from dataclasses import dataclass

from gemma_doctor.evidence.arrays import Floats, Ints


@dataclass(frozen=True)
class Turned:
    """The angles that one rotary module gives to some positions in one call.

    Attributes:
        kind: layer kind that they are for, "" for all.
        positions: ascending, shape (n,).
        angles: radians, each up to full turns, shape (n, rotary_dim / 2).
        dtype: of cos and sin, as they came out for an input in float32.
    """

    kind: str
    positions: Ints
    angles: Floats
    dtype: str

    @property
    def length(self) -> int:
        """Of the text that these positions would be in: some scalings follow it."""
        return int(self.positions[-1]) + 1


@dataclass(frozen=True)
class RotaryRange:
    """All rotary modules of a text decoder, asked from the first position to the last.

    Attributes:
        end: number of positions that the file publishes, or the loaded configuration where it does not; None without.
        turned: one per module, layer kind and length that its scaling tells apart.
        unasked: why some could not be asked, "" if all could.
    """

    end: int | None
    turned: tuple[Turned, ...]
    unasked: str = ""
