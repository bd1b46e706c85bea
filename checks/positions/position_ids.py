"""Position ids of real tokens are absolute: 0 for the first, one more for each, over every forward.

What it proves
    In every pass (prefill, decode steps before, at and after the window edge, a second turn on a returned cache, a
    padded batch) the ids that the rotary embedding received count the real tokens of each row without a gap, a repeat
    or a reset. Pads may carry any id.

Why it matters
    The rotary embedding turns queries and keys by their position. A decode step that starts again at 0, or that counts
    from the length of a cache that stopped growing, puts every new token in the wrong place: text turns incoherent
    after the first few tokens, and nothing raises.

How to fix
    Pass `position_ids` that continue over the cache (cumulative sum of the attention mask, minus one), or pass the
    attention mask to `generate` and let the library count.

Known limits
    A constant shift of a whole row is reported as a note: rotary attention depends on differences of positions only.
    Models that use learned absolute positions are not examined by this tool.

References
    Su et al. 2021, RoFormer (arXiv 2104.09864): the score of a query and a key depends on their distance.
    transformers issue 43082: chunked prefill counted pads as tokens (4.51 to 4.57, measured).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemma_doctor.check import CouldNotLook, check
from gemma_doctor.evidence import Forward, Ints, Pass, Trace
from gemma_doctor.finding import Examined, Finding, Severity, Sighting

BROKEN = "position ids do not continue by one"
UNLIKE = "rotary modules of one forward received different position ids"
SHIFTED = "a row is shifted by a constant (harmless)"


@check()
def position_ids(trace: Trace) -> Iterator[Finding | Examined]:
    """Position ids continue by one per real token, over every forward."""
    seen: dict[str, Sighting] = {}
    forwards = 0
    for one in trace.passes:
        forwards += sum(forward.positions is not None for forward in one.forwards)
        for title, observed, expected in _faults(one):
            seen.setdefault(title, Sighting(observed, expected, f"first in pass {one.name!r}")).at(one.name)
    if not forwards:
        raise CouldNotLook("no rotary module received position ids")
    for title, sighting in seen.items():
        severity = Severity.NOTE if title == SHIFTED else Severity.ERROR
        do = "let generate() count from the attention mask, or pass position_ids that continue over the cache"
        yield sighting.finding(title, severity, do)
    found = "" if BROKEN in seen else ", +1 per real token"
    yield Examined(forwards, f"{forwards} forwards in {len(trace.passes)} passes{found}")


def _faults(one: Pass) -> Iterator[tuple[str, str, str]]:
    """(title, observed, expected) for one pass."""
    if not all(forward.positions_agree for forward in one.forwards):
        yield UNLIKE, "different ids", "the same ids for every layer kind"
    for ids in _rows(one):
        jumps = np.flatnonzero(np.diff(ids) != 1)
        if jumps.size:
            yield BROKEN, _around(ids, int(jumps[0]) + 1), "+1 for every real token"
        elif ids.size and ids[0] != 0:
            yield SHIFTED, f"first real token at position {ids[0]}", "first real token at 0"


def _rows(one: Pass) -> Iterator[Ints]:
    """Ids of the real tokens of each row, over all forwards of a text. Without a cache each forward is a text anew."""
    for text in _texts(one):
        positions = np.concatenate([forward.positions for forward in text if forward.positions is not None], axis=1)
        real = np.concatenate([forward.real for forward in text], axis=1)
        for ids, flags in zip(positions, real, strict=True):
            yield ids[flags]


def _texts(one: Pass) -> list[list[Forward]]:
    texts: list[list[Forward]] = []
    for forward in one.forwards:
        if forward.positions is None:
            continue
        if forward.start == 0 or not texts:
            texts.append([])
        texts[-1].append(forward)
    return texts


def _around(ids: Ints, index: int) -> str:
    """The ids on both sides of a jump."""
    shown = ", ".join(str(value) for value in ids[max(index - 3, 0) : index + 2])
    return f"real token {index} of the row got position {ids[index]} (ids around it: {shown})"
