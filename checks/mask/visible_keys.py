"""What the kernel really reads lies inside the window: no older key, no future, no pad, in any head.

What it proves
    From rows of attention weights that were read out of the running kernel, at decode steps and in whole forwards: no
    head has weight on a key beyond the window, after the query, on a pad, or on an empty slot of the cache. Keys count
    as the tokens that they were recognised as, wherever the cache holds them. Every distance back that should be read
    is read by some head in some row.

Why it matters
    A mask that is right can be handed over and not be obeyed: by a kernel, by one head of it, or by a cache that holds
    other keys than the mask was made for. Only the weights themselves show it.

How to fix
    If `mask-pattern` or `past-key-length` fails as well, mend that first. If they pass, the kernel is at fault: compare
    with --attn-implementation eager, and with another release of torch or of the kernel's package.

Known limits
    A weight can underflow to 0: one cell that is not read proves nothing. A distance counts as never read only if 16
    weights or more (`fewest_weights`) were seen there and at most 1 % (`underflow`, a share) of those at other
    distances are 0. Rows with NaN are left to `long-generate`.

References
    transformers issue 37574 (a key too few), pull request 35681 (a window's column offset).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemma_doctor.check import CouldNotLook, NotApplicable, check
from gemma_doctor.evidence import Bools, Ints, PlacedReading, Trace, placed_readings
from gemma_doctor.finding import Examined, Finding, Severity, Sighting, Strip, counted
from gemma_doctor.oracle import causal, sliding

FUTURE = "tokens read the future"
EMPTY = "tokens read empty slots of the cache"
PADS = "real tokens read pads"
FAR = "tokens read beyond their window"
UNREAD = "no head ever reads some keys that all should"
DO = "mend what the mask and cache checks say; if they pass, the kernel is at fault: try another --attn-implementation"
MOST = 1.02  # sum of a row, rounded in half precision
FEWEST_WEIGHTS = 16  # weights at one distance
UNDERFLOW = 0.01  # share of weights


@check()
def visible_keys(
    trace: Trace, *, fewest_weights: float = FEWEST_WEIGHTS, underflow: float = UNDERFLOW
) -> Iterator[Finding | Examined]:
    """No head reads a key that it should not, and every key that should be read is read."""
    if not trace.causal:
        raise NotApplicable("bidirectional: queries read keys on both sides")
    every = list(placed_readings(trace))
    if not every:
        raise CouldNotLook(trace.unreadable or "no row of a kernel was read")
    found = [read for read in every if not (read.weights.sum(axis=-1) > MOST).any()]
    if not found:
        raise CouldNotLook("weights of every row sum to more than 1: this is no readout")
    faults = [*_forbidden(found), *_never_read(found, fewest_weights, underflow)]
    yield from faults
    rows, layers = sum(len(read.queries) for read in found), len({read.call.layer for read in found})
    said = f"{rows:,} rows of {counted(layers, 'layer')} read, every head"
    said += "" if faults else ": nothing outside the window"
    untold = sum(bool(read.call.unrecognised) for read in found)
    said += f"; in {counted(untold, 'call')} not all keys were recognised: the others count as due" if untold else ""
    odd = len(every) - len(found)
    said += f"; {counted(odd, 'call')} left out, whose weights sum to more than 1" if odd else ""
    yield Examined(rows, said + (f"; not all could be read: {trace.unreadable}" if trace.unreadable else ""))


def _allowed(read: PlacedReading) -> Bools:
    """What should be read, shape (b, q, k)."""
    rule = sliding(read.window) if read.window else causal
    due: Bools = rule(read.queries[:, None], read.columns[:, None])
    return due & (_real(read) & ~read.empty)[:, None]


def _back(read: PlacedReading) -> Ints:
    """How far back each key lies, shape (b, q, k)."""
    return read.queries[:, None] - read.columns[:, None]


def _real(read: PlacedReading) -> Bools:
    """Keys that are no pads, shape (b, k)."""
    return np.take_along_axis(read.real, read.columns, axis=1)


# --- what should not be read -----------------------------------------------------------------------------------------


def _surplus(read: PlacedReading) -> Iterator[tuple[str, Bools]]:
    """What is read and should not be, by kind, shape (b, heads, q, k)."""
    surplus = (read.weights > 0) & (~_allowed(read) & read.judged[..., None])[:, None]
    if not surplus.any():
        return
    empty, pads = read.empty[:, None, None], ~_real(read)[:, None, None]
    future = (_back(read) < 0)[:, None] & ~empty
    yield EMPTY, surplus & empty
    yield FUTURE, surplus & future
    yield PADS, surplus & ~empty & ~future & pads
    yield FAR, surplus & ~empty & ~future & ~pads


def _forbidden(found: list[PlacedReading]) -> Iterator[Finding]:
    seen: dict[str, tuple[Sighting, Strip]] = {}
    for read in found:
        for title, cells in _surplus(read):
            if not cells.any():
                continue
            if title not in seen:
                seen[title] = _first(read, title, cells)
            seen[title][0].at(read.one.name, read.call.layer)
    for title, (sighting, strip) in seen.items():
        yield sighting.finding(title, Severity.ERROR, DO, gate="mask", strip=strip)


def _first(read: PlacedReading, title: str, cells: Bools) -> tuple[Sighting, Strip]:
    sequence, head, row, key = np.argwhere(cells)[0]
    query, column, layer = int(read.queries[row]), int(read.columns[sequence, key]), read.call.layer
    where = {FUTURE: f"{column - query} ahead", EMPTY: "an empty slot"}.get(title, f"{query - column} back")
    of_batch = f" of sequence {sequence}" if len(read.real) > 1 else ""
    heads = f"{cells.any(axis=(0, 2, 3)).sum()} of {cells.shape[1]} heads"
    oldest = max(query - read.window + 1, 0) if read.window else 0
    place = f"layer {layer}, head {head}, row {query}"
    sighting = Sighting(
        observed=f"weight {read.weights[sequence, head, row, key]:.2g} on column {column}, {where}; {heads} do so",
        expected=f"0 outside of columns {oldest} to {query}" + (", and on pads" if title == PADS else ""),
        boundary=f"first in {read.one.place(read.step, read.forward.total)}, {place}, column {column}{of_batch}",
    )
    strip = Strip.around(
        place,
        read.columns[sequence].tolist(),
        _allowed(read)[sequence, row].tolist(),
        (read.weights[sequence, head, row] > 0).tolist(),
    )
    return sighting, strip


# --- what is never read ----------------------------------------------------------------------------------------------


def _never_read(found: list[PlacedReading], fewest: float, underflow: float) -> Iterator[Finding]:
    # prompts and decode steps apart: a kernel computes them in different ways
    layers: dict[tuple[int, int | None, bool], list[PlacedReading]] = {}
    for read in found:
        if read.judged.all():
            layers.setdefault((read.call.layer, read.window, read.forward.is_decode_step), []).append(read)
    sighting = None
    for (layer, window, decode), of_layer in layers.items():
        unread = _unread(of_layer, fewest, underflow)
        if not len(unread):
            continue
        if sighting is None:
            due = f"W = {window}" if window else "no window"
            observed = f"no weight on keys {unread[0]} to {unread[-1]} back, in any head of any row that was read"
            expected = f"some head reads them ({due}), as all others are read"
            where = "at decode steps" if decode else "in prompts"
            sighting = Sighting(observed, expected, f"first in layer {layer}, {where}")
        for read in of_layer:
            sighting.at(read.one.name, layer)
    if sighting is not None:
        yield sighting.finding(UNREAD, Severity.ERROR, DO, gate="mask")


def _unread(found: list[PlacedReading], fewest: float, most: float) -> Ints:
    """Distances back, itself 0, of keys that the kernel was handed, that should be read and never are."""
    longest = max(read.forward.total for read in found)
    seen, read_at = np.zeros(longest, dtype=np.int64), np.zeros(longest, dtype=np.int64)
    for read in found:
        allowed = np.broadcast_to(_allowed(read)[:, None], read.weights.shape)
        back = np.broadcast_to(_back(read)[:, None], read.weights.shape)
        seen += np.bincount(back[allowed], minlength=longest)
        read_at += np.bincount(back[allowed & (read.weights > 0)], minlength=longest)
    enough = seen >= max(fewest, 1)
    unread, others = enough & (read_at == 0), enough & (read_at > 0)
    underflow = 1 - read_at[others].sum() / max(int(seen[others].sum()), 1)
    return np.flatnonzero(unread) if underflow <= most else np.zeros(0, dtype=np.int64)
