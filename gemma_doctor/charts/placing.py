"""From calls of the attention function to values by token: each key where the token that it holds belongs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gemma_doctor.evidence import EMPTY_SLOT, Floats, Floats32, Forward, Ints, KernelCall
from gemma_doctor.finding import counted

Misplaced = tuple[tuple[int, int | None], ...]


@dataclass
class Placed:
    """What some rows of one layer read, or may read, by token.

    Attributes:
        values: shape (heads, rows, keys); NaN where the kernel was not handed the key.
        sums: of the rows as the kernel has them, shape (heads, rows); NaN where a row was not read.
        misplaced: see `charts.chart.Panel`.
        notes: what a reader must know of them.
    """

    values: Floats32
    sums: Floats
    misplaced: Misplaced = ()
    notes: tuple[str, ...] = ()


def placed(
    calls: Sequence[tuple[Forward, KernelCall]], heads: int, rows: range, pads: int, *, masks: bool = False
) -> Placed:
    """Put the rows of calls of one layer into their places.

    Several slots with one token's key count together; what lies on empty slots belongs to no token.

    Args:
        calls: with readings.
        heads: query heads.
        rows: positions of the queries; keys go from the first pad to the last of these.
        pads: left pads in front of position 0.
        masks: place what may be read (1 or 0) instead of what was.
    """
    keys = rows.stop + pads
    made = Placed(np.full((heads, len(rows), keys), np.nan, dtype=np.float32), np.full((heads, len(rows)), np.nan))
    for forward, call in calls:
        assert call.reading is not None
        read = _may_read(forward, call) if masks else call.reading.weights[0]
        if read is None:
            made.notes += (f"layer {call.layer}: its mask has no cells to show",)
            continue
        if call.unrecognised:
            unknown = counted(call.unrecognised, "key")
            made.notes += (f"layer {call.layer}: {unknown} of no known token, shown where they are due",)
        due = forward.first_key(call) + np.arange(call.key_shape[2])
        (columns, *_), (empty, *_) = forward.key_columns(call)
        known = (columns < keys) & (due < forward.total)
        at = call.reading.queries - pads - rows.start
        made.values[:, at] = _by_token(read[..., known & ~empty], columns[known & ~empty], keys)
        made.sums[:, at] = read.sum(axis=-1)
        made.misplaced = _misplaced(due[known], np.where(empty, EMPTY_SLOT, columns)[known], pads)
    return made


def _may_read(forward: Forward, call: KernelCall) -> Floats32 | None:
    """As the weights of a reading, 1 where the kernel may read a key; None where its mask has no cells."""
    assert call.reading is not None
    cells = forward.may_read(call)
    if cells is None:
        return None
    own = call.reading.queries - forward.first_query(call)
    return np.broadcast_to(cells[0][:, own], call.reading.weights.shape[1:]).astype(np.float32)


def _by_token(read: Floats32, tokens: Ints, keys: int) -> Floats32:
    """Columns by token, shape (heads, rows, keys), from columns as they lie, shape (heads, rows, k)."""
    sums = np.zeros((keys, read.shape[0] * read.shape[1]), dtype=np.float32)
    np.add.at(sums, tokens, read.reshape(-1, len(tokens)).T)
    sums[np.setdiff1d(np.arange(keys), tokens)] = np.nan
    return sums.T.reshape(*read.shape[:2], keys)


def _misplaced(due: Ints, held: Ints, pads: int) -> Misplaced:
    if not set(due.tolist()) - set(held.tolist()):
        return ()
    pairs = zip(due.tolist(), held.tolist(), strict=True)
    return tuple((a - pads, None if b == EMPTY_SLOT else b - pads) for a, b in pairs if a != b)
