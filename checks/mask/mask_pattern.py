"""Each query may read its window, or its whole past, and nothing else.

What it proves
    For every kernel call of every pass, cell by cell: a query of a sliding layer may read itself and the W - 1 keys
    before it, one of a full layer itself and everything before it, all of these keys, and never a later one or a pad.
    Cells are those of the mask that the attention function received; where it received none, those of a kernel that is
    causal from its first key on, or of a single query, which reads all keys handed over.

Why it matters
    One column too many or too few changes every long text a little and no short one. A future or a pad that may be
    read changes everything after it. None of these raises.

How to fix
    Build the mask from 0 <= query - key < W, both counted in columns of the whole sequence: once a cache has dropped
    keys, its first column is not column 0. Blocking `query - key > W` is off by one.

Known limits
    That the kernel obeys its mask is the business of `visible-keys`. Rows of pad queries are free. Empty rows of real
    ones belong to `all-masked-rows`, and here only where other rows of their layer lose cells as well; masks that do
    not fit or are misread belong to `mask-shape` and `mask-dtype`. Masks of flash and flex attention have no cells.
    Layers that attend in chunks, and bidirectional models, are not compared.

References
    Mistral 7B, arXiv:2310.06825, section 2; transformers pull request 35681 (a window's column offset).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gemma_doctor.check import NotApplicable, check, nothing_there
from gemma_doctor.evidence import FULL, SLIDING, Bools, Forward, Ints, KernelCall, Pass, Trace
from gemma_doctor.finding import Cells, Examined, Finding, Severity, Sighting, Strip, counted
from gemma_doctor.oracle import visible

FUTURE = "queries may read the future"
PADS = "real tokens may read pads"
FAR = "queries may read beyond their window"
LOST = "queries may not read all keys that they should"
DO = {
    FUTURE: "look at what makes this mask causal, and at its column offset",
    PADS: "pass a padding mask with a column for every token so far, the cached ones too",
    FAR: "look at the window of this mask: a query reads itself and the W - 1 keys before it",
    LOST: "look at the window of this mask, at its column offset, and at the padding mask",
}
ROWS_AT_ONCE = 256  # a mask of 8,192 tokens has 67 million cells
SIDE = 48  # of the picture


@check(decides_before="mask")
def mask_pattern(trace: Trace) -> Iterator[Finding | Examined]:
    """Each query may read its window, or its whole past, and nothing else."""
    if not trace.causal:
        raise NotApplicable("bidirectional: queries read keys on both sides")
    seen: dict[str, Sighting] = {}
    strips: dict[str, Strip] = {}
    worst: dict[str, tuple[_Wrong, str]] = {}
    empty: list[tuple[str, int]] = []  # passes and layers with rows that are
    left: Counter[str] = Counter()
    calls = cells = 0
    for one, step, forward, real in trace.steps():
        known: dict[tuple[object, ...], tuple[tuple[_Wrong, ...], bool]] = {}
        for call in forward.calls:
            why_not = _why_not(trace, one, call)
            if why_not:
                left[why_not] += 1
                continue
            calls += 1
            window = trace.window(one, call.layer)
            handle = (id(call.mask), window, call.query_shape, call.key_shape)  # layers share masks
            if handle not in known:
                grid = _grid(forward, call, real, window, f"layer {call.layer}, pass {one.name!r}, step {step}")
                known[handle] = tuple(grid.wrong()), grid.has_empty_rows
                cells += len(grid.rows) * len(grid.columns)
            found, has_empty_rows = known[handle]
            empty += [(one.name, call.layer)] if has_empty_rows else []
            for wrong in found:
                if wrong.title not in seen:
                    boundary = f"first in {one.place(step, forward.total)}, layer {call.layer}, {wrong.place}"
                    seen[wrong.title] = Sighting(wrong.observed, wrong.expected, boundary)
                    strips[wrong.title] = wrong.strip
                seen[wrong.title].at(one.name, call.layer)
                if wrong.title not in worst or wrong.count > worst[wrong.title][0].count:
                    worst[wrong.title] = wrong, one.name
    for name, layer in empty:
        if LOST in seen and layer in seen[LOST].layers:
            seen[LOST].at(name, layer)
    for title, sighting in seen.items():
        most, name = worst[title]
        extent = f"; most in pass {name!r}: {counted(most.count, 'cell')} of one call, up to {most.farthest} away"
        yield sighting.finding(
            title,
            Severity.ERROR,
            DO[title],
            observed=sighting.observed + extent,
            strip=strips[title],
            cells=most.cells,
        )
    others = ", ".join(f"{count:,} {why}" for why, count in left.items())
    if not calls:
        raise nothing_there(trace, f"no call to compare: {others}" if left else "no call of an attention function")
    said = f"{calls:,} calls, {cells:,} different cells" + ("" if seen else ": windows, causality and pads as due")
    yield Examined(calls, said + (f"; not compared: {others}" if left else ""))


def _why_not(trace: Trace, one: Pass, call: KernelCall) -> str:
    """Why a call cannot be compared, "" if it can."""
    kind, (batch, heads, queries, _), keys = trace.layer_kinds.get(call.layer, ""), call.query_shape, call.key_shape[2]
    if kind not in (SLIDING, FULL):
        return f"of {kind or 'an unknown kind'}"
    if kind == SLIDING and one.window is not None and one.window < 1:
        return f"with a window of {one.window}"
    if call.mask is None:
        if call.kernel not in ("eager", "sdpa"):
            return f"of {call.kernel}, without a mask"
        return "" if call.causal_when_none or queries == 1 else "left to mask-shape"
    mask = call.mask
    if mask.form != "dense":
        return f"{mask.form} masks, which have no cells"
    fits = mask.shape[0] in (1, batch) and mask.shape[1] in (1, heads) and mask.shape[2] == queries
    if not fits or mask.shape[3] < keys:
        return "left to mask-shape"
    plain = mask.dtype in ("bool", call.query_dtype) and not mask.between and not mask.nans
    return "" if plain else "left to mask-dtype"


@dataclass(frozen=True)
class _Wrong:
    """All cells of one call that are wrong in one way: the first of them, in words and drawn.

    Attributes:
        count: how many there are.
        farthest: the largest distance of query and key among them.
    """

    title: str
    place: str
    observed: str
    expected: str
    count: int
    farthest: int
    strip: Strip
    cells: Cells


@dataclass
class _Seen:
    """Wrong cells of one kind while they are counted; the indices are those of the first."""

    sequence: int
    row: int
    column: int
    count: int = 0
    farthest: int = 0


@dataclass(frozen=True)
class _Grid:
    """What the queries of one call may read.

    Attributes:
        rows, columns: of the sequence, shapes (q,) and (k,).
        real: shape (b, columns up to the last one), False in empty slots of a static cache.
        window: W, None in full layers.
        mask: shape (1 or b, 1 or heads, q, k), None where the kernel decides.
        call: whose cells these are.
        place: layer, pass and step in words.
    """

    rows: Ints
    columns: Ints
    real: Bools
    window: int | None
    mask: Bools | None
    call: KernelCall
    place: str

    def expected(self, part: slice) -> Bools:
        """Shape (b, rows, k)."""
        due: Bools = visible(self.window, self.real)(self.rows[part, None], self.columns[None])
        return due

    def open(self, part: slice) -> Bools:
        """Shape (1 or b, 1 or heads, rows, k)."""
        if self.mask is not None:
            return self.mask[:, :, part]
        return self.call.unmasked(np.arange(len(self.rows))[part])[None, None]

    @property
    def has_empty_rows(self) -> bool:
        """Some real query may read nothing, in some head."""
        if self.mask is None:
            return False
        has_keys = np.all(np.any(self.mask, axis=-1), axis=1)
        return bool((self.real[:, self.rows] & ~has_keys).any())

    def wrong(self) -> Iterator[_Wrong]:
        """Each kind of wrong cell once."""
        seen: dict[str, _Seen] = {}
        for start in range(0, len(self.rows), ROWS_AT_ONCE):
            for title, cells in self._judged(slice(start, start + ROWS_AT_ONCE)):
                found = np.argwhere(cells)
                if len(found):
                    found[:, 1] += start
                    one = seen.setdefault(title, _Seen(*map(int, found[0])))
                    one.count += len(found)
                    back = self.rows[found[:, 1]] - self.columns[found[:, 2]]
                    one.farthest = max(one.farthest, int(np.abs(back).max()))
        for title, one in seen.items():
            yield self._described(title, one)

    def _judged(self, part: slice) -> Iterator[tuple[str, Bools]]:
        """Wrong cells of some rows, by kind, shape (b, rows, k)."""
        expected, cells = self.expected(part), self.open(part)
        rows, columns = self.rows[part, None], self.columns[None]
        has_keys = np.all(np.any(cells, axis=-1), axis=1)
        judged = (self.real[:, self.rows[part]] & has_keys)[..., None]
        surplus, lost = cells.any(axis=1) & ~expected & judged, expected & ~cells.all(axis=1) & judged
        if surplus.any():
            pads = ~self.real[:, None, self.columns]
            yield FUTURE, surplus & (columns > rows)
            yield PADS, surplus & (columns <= rows) & pads
            yield FAR, surplus & (columns <= rows) & ~pads
        yield LOST, lost

    def _described(self, title: str, seen: _Seen) -> _Wrong:
        sequence, row, column = seen.sequence, seen.row, seen.column
        query, key = int(self.rows[row]), int(self.columns[column])
        of_batch = f" of sequence {sequence}" if len(self.real) > 1 else ""
        where = {
            FUTURE: f"{key - query} ahead, in the future",
            PADS: f"{query - key} back, a pad",
            FAR: f"{query - key} back, outside the window",
            LOST: f"{query - key} back, " + ("inside the window" if self.window else "in the past"),
        }[title]
        oldest, may = max(query - self.window + 1, 0) if self.window else 0, "may not" if title == LOST else "may"
        kind = f", the window of {self.window}" if self.window else ""
        kind += "" if self.real[sequence, : query + 1].all() else ", without pads"
        return _Wrong(
            title,
            place=f"row {query}, column {key}{of_batch}",
            observed=f"row {query} {may} read column {key}: {where}",
            expected=f"columns {oldest} to {query}{kind}",
            count=seen.count,
            farthest=seen.farthest,
            strip=self._strip(sequence, row),
            cells=self._cells(sequence, row, column),
        )

    def _row(self, sequence: int, row: int) -> tuple[Bools, Bools]:
        """What one row should and may read, shape (k,) each: in the first head that is wrong. Rows of pads are free."""
        part = slice(row, row + 1)
        expected, heads = self.expected(part)[sequence, 0], self.open(part)
        heads = heads[sequence % len(heads), :, 0]
        read = heads[(heads != expected).any(axis=-1).argmax()]
        return expected if self.real[sequence, self.rows[row]] else read, read

    def _strip(self, sequence: int, row: int) -> Strip:
        expected, read = self._row(sequence, row)
        return Strip.around(f"row {self.rows[row]}", self.columns.tolist(), expected.tolist(), read.tolist())

    def _cells(self, sequence: int, row: int, column: int) -> Cells:
        top = max(min(row - SIDE // 2, len(self.rows) - SIDE), 0)
        left = max(min(column - SIDE // 2, len(self.columns) - SIDE), 0)
        picked = [self._row(sequence, at) for at in range(top, min(top + SIDE, len(self.rows)))]
        expected, observed = (
            tuple("".join(np.where(line[left : left + SIDE], "#", ".")) for line in lines)
            for lines in zip(*picked, strict=True)
        )
        of_batch = f", sequence {sequence}" if len(self.real) > 1 else ""
        return Cells(self.place + of_batch, int(self.rows[top]), int(self.columns[left]), expected, observed)


def _grid(forward: Forward, call: KernelCall, real: Bools, window: int | None, place: str) -> _Grid:
    keys, first = call.key_shape[2], forward.first_key(call)
    empty = max(first + keys - forward.total, 0)
    return _Grid(
        rows=np.arange(forward.first_query(call), forward.total),
        columns=np.arange(first, first + keys),
        real=np.pad(real, ((0, 0), (0, empty))),
        window=window,
        mask=None if call.mask is None else call.mask.readable()[..., :keys],
        call=call,
        place=place,
    )
