"""Texts that end in a loop, in what stood there before, or in false certainty.

The numbers are chosen, and they only say which texts are looked at closely: whether anything is wrong with one is for
the reference route to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gemma_doctor.evidence import Floats, Ints

REPEATS = 4  # a loop is a run of tokens that stands at least this often in a row at the end ...
LOOP_TOKENS = 16  # ... and fills at least this many tokens
RUN = 4  # tokens that were there before, one after the other
LAST = 32  # tokens of the end that are looked at
SHARE = 0.75  # of them
CERTAIN, UNSURE = 0.1, 0.5  # nats; medians of what was generated and of the reference


def repeated_tail(tokens: Ints, loop_tokens: float = LOOP_TOKENS) -> tuple[int, int] | None:
    """(start, period) of the loop in which the tokens end, or None. Shape (n,)."""
    for period in range(1, len(tokens) // REPEATS + 1):
        same = tokens[period:] == tokens[:-period]
        run = len(same) if same.all() else int(np.argmin(same[::-1]))
        if run + period >= max(REPEATS * period, loop_tokens):
            return len(tokens) - run - period, period
    return None


def repetition(tokens: Ints, share: float = SHARE) -> int | None:
    """The first of the last steps that end a run which stood there before, if most of them do; else None."""
    seen: set[tuple[int, ...]] = set()
    again = np.zeros(len(tokens), dtype=bool)
    for end in range(RUN, len(tokens) + 1):
        run = tuple(tokens[end - RUN : end].tolist())
        again[end - 1] = run in seen
        seen.add(run)
    if len(tokens) < LAST + RUN or again[-LAST:].mean() < share:
        return None
    return len(tokens) - LAST + int(np.argmax(again[-LAST:]))


def turns_certain(ours: Floats, theirs: Floats, certain: float = CERTAIN, unsure: float = UNSURE) -> int | None:
    """The step from which on a text is far more certain than the reference is about the same tokens, or None.

    Args:
        ours, theirs: entropies of the next-token distributions in nats, shape (n,); empty where not known.
        certain, unsure: medians below which ours, and above which theirs must lie, in nats.
    """
    if len(ours) < LOOP_TOKENS or len(ours) != len(theirs):
        return None
    if not (np.median(ours[-LOOP_TOKENS:]) < certain and np.median(theirs[-LOOP_TOKENS:]) > unsure):
        return None
    last = len(ours) - LOOP_TOKENS
    steps = np.flatnonzero(ours >= certain)
    return int(steps[-1]) + 1 if len(steps) and steps[-1] < last else last
