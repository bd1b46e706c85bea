"""How long the texts are that are asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wanted:
    """A length of text that the run, or the model's own settings, ask for.

    Attributes:
        by: what asks for it, e.g. "--length".
        tokens: prompt and new tokens together.
        of_this_run: the run itself asks for it; else the subject's settings allow it.
    """

    by: str
    tokens: int
    of_this_run: bool


@dataclass(frozen=True)
class Lengths:
    """All lengths that somebody asks for; empty where the tool chose them itself, within the model's positions."""

    wanted: tuple[Wanted, ...]

    @property
    def longest(self) -> Wanted | None:
        """The longest of them; None where nobody asked for any."""
        return max(self.wanted, key=lambda one: one.tokens, default=None)
