"""What is drawn, before it is drawn: panels in groups, keys in bins, and what is wrong with them, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from gemma_doctor.charts.chart import Chart, Panel, binned
from gemma_doctor.charts.labels import percent, spans
from gemma_doctor.evidence import Bools, Floats32, Ints
from gemma_doctor.finding import counted

LOWEST = 1e-5  # weights below this share of a row look alike on the log scale
_TOLD = 4


@dataclass(frozen=True)
class Group:
    """Panels of one kind and window, on one stretch of the key axis.

    Attributes:
        title: "15 sliding layers, W=512".
        panels: in layer order.
        stretch: of the chart's key axis; outside of it none of them reads or should read anything.
        is_part: the stretch is not the whole axis.
    """

    title: str
    panels: tuple[Panel, ...]
    stretch: slice
    is_part: bool


@dataclass(frozen=True)
class Marks:
    """Queries x keys in bins. A bin shows its largest weight, and a fault if one of its cells has it.

    Attributes, all of shape (rows, bins):
        values: NaN where the kernel was handed nothing.
        allowed: may be read, the oracle says.
        extra: read (or readable), and should not be.
        missing: should be readable, and the mask or the cache does not let it.
        width, height: keys and queries that one bin holds.
    """

    values: Floats32
    allowed: Bools
    extra: Bools
    missing: Bools
    width: int
    height: int

    @property
    def edges(self) -> Ints:
        """The bin that holds the first key that may be read, for every row; 0 if none may."""
        return np.asarray(self.allowed.argmax(axis=1), dtype=np.int64)


def groups(chart: Chart) -> list[Group]:
    """Panels by kind and window, in order of appearance."""
    kinds: dict[tuple[str, int | None], list[Panel]] = {}
    for panel in chart.panels:
        kinds.setdefault((panel.kind, panel.window), []).append(panel)
    return [_group(chart, tuple(panels)) for panels in kinds.values()]


def _group(chart: Chart, panels: tuple[Panel, ...]) -> Group:
    first = panels[0]
    name = f"{first.kind.removesuffix('_attention')} layer".strip()
    window = f", W={first.window:,}" if first.window else ""
    title = "whole stack" if first.layer is None else f"{counted(len(panels), name)}{window}"
    stretch = _stretch(panels, len(chart.keys))
    return Group(title, panels, stretch, stretch.stop - stretch.start < len(chart.keys))


def _stretch(panels: tuple[Panel, ...], length: int) -> slice:
    """The keys that these panels read or should read, with a margin; all of them if that saves little."""
    used = np.zeros(length, dtype=bool)
    for panel in panels:
        used |= panel.allowed.any(axis=0) | (panel.values > 0).any(axis=(0, 1))
    first, last = (int(used.argmax()), length - int(used[::-1].argmax())) if used.any() else (0, length)
    if (last - first) * 3 > length:
        return slice(0, length)
    margin = 1 + (last - first) // 16
    return slice(max(0, first - margin), min(length, last + margin))


def joined(values: Floats32) -> Floats32:
    """All heads as one: the largest weight of each cell, shape (heads, q, k) to (q, k)."""
    return np.asarray(np.fmax.reduce(values, axis=0), dtype=np.float32)


def peaks(values: Floats32) -> Floats32:
    """The largest weight of every key, shape (..., k) to (k,). NaN only where no row was handed the key."""
    return np.asarray(np.fmax.reduce(values.reshape(-1, values.shape[-1]), axis=0), dtype=np.float32)


def wrong(kind: str, values: Floats32, allowed: Bools) -> tuple[Bools, Bools]:
    """Cells that are read and should not be, and cells that cannot be read and should be; in the shape of `values`.

    A weight of 0 may be underflow, so attention lacks only what was not handed over. Influence lacks nothing: its
    reach says what a query can depend on, not what it must.
    """
    readable = values > 0 if kind == "mask" else ~np.isnan(values)
    missing = np.zeros_like(readable) if kind == "influence" else allowed & ~readable
    return (values > 0) & ~allowed, missing


def marks(chart: Chart, panel: Panel, values: Floats32, stretch: slice, most: tuple[int, int]) -> Marks:
    """One head (or the joined heads) of a panel, in bins.

    Args:
        values: shape (q, k).
        most: rows and columns to show at most.
    """
    cut, allowed = values[:, stretch], panel.allowed[:, stretch]
    extra, missing = wrong(chart.kind, cut, allowed)
    shown, width, height = _in_bins(cut, most)
    may, more, less = (_in_bins(one.astype(np.float32), most)[0] > 0 for one in (allowed, extra, missing))
    return Marks(shown, may, more, less, width, height)


def looks(kind: str, shown: Marks) -> dict[str, Bools]:
    """Which bins look how, each in the shape of `shown.values`: missing, extra, absent (handed nothing), unread, read.

    A bin has one look, but for extra and missing, which it can hold both. Of a mask, unread is what may not be read; of
    weights, what must not be read and is not.
    """
    faulty = shown.extra | shown.missing
    absent = np.isnan(shown.values) & ~faulty
    unread = (shown.values <= 0) & ~faulty
    if kind != "mask":
        unread &= ~shown.allowed
    read = ~(faulty | absent | unread)
    return {"missing": shown.missing, "extra": shown.extra, "absent": absent, "unread": unread, "read": read}


def seen(kind: str, drawn: Iterable[Marks]) -> set[str]:
    """The looks that a legend must explain, and "edge" if reading begins within the key axis of some row."""
    found: set[str] = set()
    for one in drawn:
        found |= {look for look, bins in looks(kind, one).items() if bins.any()}
        found |= {"edge"} if one.edges.any() else set()
    return found


def _in_bins(values: Floats32, most: tuple[int, int]) -> tuple[Floats32, int, int]:
    columns, width = binned(values, most[1])
    rows, height = binned(columns.T, most[0])
    return rows.T, width, height


def levels(chart: Chart, values: Floats32) -> Floats32:
    """Brightness from 0 to 1; NaN stays NaN. Log scale: LOWEST and less is 0; linear: up to the chart's largest."""
    if chart.scale == "log":
        return np.asarray(1 - np.log10(np.clip(values, LOWEST, 1)) / np.log10(LOWEST), dtype=np.float32)
    return np.asarray(values / largest(chart), dtype=np.float32)


def largest(chart: Chart) -> float:
    """The largest value of all panels, 1 if all are 0."""
    return max(float(np.nan_to_num(panel.values).max(initial=0)) for panel in chart.panels) or 1.0


def faults(chart: Chart) -> Iterator[str]:
    """What is wrong in the chart, one sentence per layer and fault."""
    verbs = {
        "attention": ("reads {} that it must not", "was not handed {} that it should read"),
        "mask": ("may read {} that it should not", "may not read {} that it should"),
        "influence": ("depends on {} out of its reach", ""),
    }[chart.kind]
    for panel in chart.panels:
        extra, missing = wrong(chart.kind, panel.values, panel.allowed)
        for cells, verb in zip((extra, missing), verbs, strict=True):
            if cells.any():
                yield f"{panel.title}: {_sentence(chart, panel, cells, verb)}"
        if panel.misplaced:
            yield f"{panel.title}: {_misplaced(panel)}"


def _sentence(chart: Chart, panel: Panel, cells: Bools, verb: str) -> str:
    """About the first wrong query and its first wrong head; how many others there are."""
    bad_rows = np.flatnonzero(cells.any(axis=(0, 2)))
    row = int(bad_rows[0])
    head = int(cells[:, row].any(axis=1).argmax())
    keys = chart.keys[cells[head, row]]
    name = f" (head {panel.heads[head]})" if len(panel.heads) > 1 else ""
    weight = np.nan_to_num(panel.values[head, row][cells[head, row]]).sum()
    amount = f"; {percent(float(weight))} of its weight" if chart.kind == "attention" and weight > 0 else ""
    others = f"; and {len(bad_rows) - 1:,} more of the shown queries" if len(bad_rows) > 1 else ""
    return f"token {chart.queries[row]:,}{name} {verb.format(counted(len(keys), 'key'))}: {spans(keys)}{amount}{others}"


def _misplaced(panel: Panel) -> str:
    told = [f"the slot of token {due:,} holds {_held(there)}" for due, there in panel.misplaced[:_TOLD]]
    rest = len(panel.misplaced) - len(told)
    return ", ".join(told) + (f", and {counted(rest, 'more slot')} are wrong" if rest > 0 else "")


def _held(token: int | None) -> str:
    return "nothing" if token is None else f"token {token:,}"
