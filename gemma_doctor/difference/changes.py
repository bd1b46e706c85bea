"""What a comparison of two documents comes to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """One thing that is not the same.

    Attributes:
        about: a check's id, or a place in the document ("environment.torch", "layers 0-4, 6").
        what: in words, e.g. "new error: sliding cache drops a key one step early", or the name of a key.
        before, after: what stands there; "" if nothing does.
        fingerprint: of the finding, "" if it is about none.
    """

    about: str
    what: str
    before: str = ""
    after: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two documents held against each other.

    Attributes:
        of: "reports" or "facts".
        before, after: names of the files.
        before_is, after_is: subject and verdict of each, in words.
        same_subject: they are about the same one.
        worse, better, changed: of reports.
        differs: of facts, where neither side is the right one.
        not_compared: what only one side says, in words.
        compared: how many things both sides say.
    """

    of: str
    before: str
    after: str
    before_is: str
    after_is: str
    same_subject: bool
    compared: int
    worse: tuple[Change, ...] = ()
    better: tuple[Change, ...] = ()
    changed: tuple[Change, ...] = ()
    differs: tuple[Change, ...] = ()
    not_compared: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """WORSE, DIFFERENT (facts), BETTER, CHANGED or THE SAME."""
        told = {"WORSE": self.worse, "DIFFERENT": self.differs, "BETTER": self.better, "CHANGED": self.changed}
        return next((word for word, changes in told.items() if changes), "THE SAME")

    @property
    def exit_code(self) -> int:
        """1 if something got worse, or two engines do not agree; else 0."""
        return int(bool(self.worse or self.differs))
