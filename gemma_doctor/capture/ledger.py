"""What was run, and what it took: every pass is entered here while it runs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass
class Entry:
    """One pass, or several of one name.

    Attributes:
        forwards: forwards of the model that were counted.
        tokens: columns that were fed to them, pads included, summed over rows.
        seconds: without those of the entries inside of it.
    """

    forwards: int = 0
    tokens: int = 0
    seconds: float = 0.0


@dataclass
class Ledger:
    """The passes of one patient, by name, in the order in which they began."""

    entries: dict[str, Entry] = field(default_factory=dict)

    @contextmanager
    def open(self, name: str) -> Iterator[None]:
        """Whatever is counted in the block, here or in an `entry` within it, goes into this ledger."""
        token = _OPEN.set(self)
        try:
            with entry(name):
                yield
        finally:
            _OPEN.reset(token)

    @property
    def ran(self) -> dict[str, Entry]:
        """Those in which forwards of the model were counted."""
        return {name: one for name, one in self.entries.items() if one.forwards}


@dataclass
class _Running:
    entry: Entry
    inside: float = 0.0  # seconds spent in entries inside of it


_OPEN: ContextVar[Ledger | None] = ContextVar("ledger", default=None)
_CURRENT: ContextVar[_Running | None] = ContextVar("entry", default=None)
_WHERE: ContextVar[str] = ContextVar("where", default="")


@contextmanager
def elsewhere(where: str) -> Iterator[None]:
    """Passes in the block run on another model than the subject; `where` is said after their names."""
    token = _WHERE.set(f" {where}")
    try:
        yield
    finally:
        _WHERE.reset(token)


@contextmanager
def entry(name: str) -> Iterator[None]:
    """A pass of the ledger that is open, if one is. A pass inside of another one has an entry and a time of its own."""
    ledger, outer = _OPEN.get(), _CURRENT.get()
    if ledger is None:
        yield
        return
    running = _Running(ledger.entries.setdefault(name + _WHERE.get(), Entry()))
    token, started = _CURRENT.set(running), time.perf_counter()
    try:
        yield
    finally:
        spent = time.perf_counter() - started
        _CURRENT.reset(token)
        running.entry.seconds += spent - running.inside
        if outer is not None:
            outer.inside += spent


def count(forwards: int, tokens: int) -> None:
    """Enter forwards of the model into the pass that is under way."""
    running = _CURRENT.get()
    if running is not None:
        running.entry.forwards += forwards
        running.entry.tokens += tokens


def in_words(kind: type) -> str:
    """The name of what is run for one kind of evidence: "padded batch" of PaddedBatch."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()
