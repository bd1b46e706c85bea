"""What a page draws of a finding, as shapes for SVG: cells as runs of equal marks, curves as points.

Nothing here is markup: the template writes it, and escapes it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gemma_doctor.finding import Cells, Curve, counted

LOOKS = {"#": "read", ".": "unread", "+": "extra", "!": "missing"}  # by the marks of `Strip` and `Cells`
MEANINGS = {
    "read": "read, as expected",
    "unread": "not read, as expected",
    "extra": "+ read, and must not be",
    "missing": "! should be read, and is not",
}
MOST_CELLS = 48  # to a side; of more, the page holds what lies around the first wrong cell
WIDTH, HEIGHT = 340, 190  # units of a curve's drawing, near the pixels of a phone
LEFT, RIGHT, TOP, BOTTOM = 30, 22, 10, 24  # around its axes
LABEL = 44  # units that the label of a length takes
LINE_LOOKS = 4


@dataclass(frozen=True)
class Run:
    """Neighbours that look alike.

    Attributes:
        look: one of LOOKS' values.
        text: their marks.
    """

    look: str
    text: str


@dataclass(frozen=True)
class Panel:
    """One picture of cells, a unit to a cell.

    Attributes:
        name: "expected" or "observed".
        paths: of all cells that look alike, by look; only those that are there.
        signs: strokes in the wrong cells: what is told by colour must be told without it.
        wrong: how many cells are.
    """

    name: str
    width: int
    height: int
    paths: Mapping[str, str]
    signs: str
    wrong: int


@dataclass(frozen=True)
class CellsDrawing:
    """Expected beside observed.

    Attributes:
        said: which part it is, in words.
        legend: what is in the picture, and nothing else: (look, meaning).
    """

    caption: str
    said: str
    panels: tuple[Panel, Panel]
    legend: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class CurveLine:
    """One line: its points, and the same as a text for `polyline`. Numbers that are not finite are left out."""

    name: str
    look: int
    points: tuple[tuple[str, str], ...]

    @property
    def path(self) -> str:
        return " ".join(f"{x},{y}" for x, y in self.points)


@dataclass(frozen=True)
class CurveDrawing:
    """A curve in a box of WIDTH x HEIGHT.

    Attributes:
        across, up: ticks, (place, label).
        marks: vertical lines, (place, label).
        chance: place of the horizontal line and its label, None if there is none.
    """

    curve: Curve
    lines: tuple[CurveLine, ...]
    across: tuple[tuple[str, str], ...]
    up: tuple[tuple[str, str], ...]
    marks: tuple[tuple[str, str], ...]
    chance: tuple[str, str] | None


def runs(marks: str) -> list[Run]:
    """The marks of a strip, in runs; what is no mark looks like an unread key."""
    return [Run(LOOKS.get(found[1], "unread"), found[0]) for found in re.finditer(r"(.)\1*", marks, re.DOTALL)]


def cells_drawing(cells: Cells) -> CellsDrawing:
    """Of the cells around the first wrong one, at most MOST_CELLS to a side."""
    width = max(map(len, (*cells.expected, *cells.observed)), default=0)
    expected = [row.ljust(width, ".") for row in cells.expected]
    compared = [_compared(due, got.ljust(width, ".")) for due, got in zip(expected, cells.observed, strict=False)]
    first = next(((at, found.start()) for at, row in enumerate(compared) if (found := re.search("[+!]", row))), (0, 0))
    top, left = (max(place - MOST_CELLS // 2, 0) for place in first)
    parts = [[row[left:][:MOST_CELLS] for row in rows[top:][:MOST_CELLS]] for rows in (expected, compared)]
    due, seen = parts
    drawn = _panel("expected", due), _panel("observed", seen)
    present = {look for panel in drawn for look in panel.paths}
    total = sum(len(re.findall("[+!]", row)) for row in compared)
    height, shown = len(seen), drawn[0].width
    query, key = cells.first_query + top, cells.first_key + left
    place = f"queries {query:,} to {query + height - 1:,} down, keys {key:,} to {key + shown - 1:,} across"
    wrong = counted(drawn[1].wrong, "wrong cell") + (f" of {total:,}" if total != drawn[1].wrong else "")
    legend = tuple((look, meaning) for look, meaning in MEANINGS.items() if look in present)
    return CellsDrawing(cells.caption, f"{place}; {wrong}", drawn, legend)


def _compared(expected: str, observed: str) -> str:
    """One row as the marks of a strip."""
    pairs = {("#", "."): "!", (".", "#"): "+"}
    return "".join(pairs.get(pair, pair[1]) for pair in zip(expected, observed, strict=True))


def _panel(name: str, rows: Sequence[str]) -> Panel:
    paths: dict[str, str] = {}
    signs = []
    for y, row in enumerate(rows):
        x = 0
        for run in runs(row):
            count = len(run.text)
            paths[run.look] = f"{paths.get(run.look, '')}M{x} {y}h{count}v1h-{count}z"
            signs += [_sign(run.look, column, y) for column in range(x, x + count)]
            x += count
    strokes = "".join(signs)
    return Panel(name, max(map(len, rows), default=0), len(rows), paths, strokes, sum(map(bool, signs)))


def _sign(look: str, x: int, y: int) -> str:
    """A plus in a cell that is read and must not be, an upright bar in one that is missing."""
    if look == "extra":
        return f"M{x}.2 {y}.5h.6m-.3-.3v.6"
    return f"M{x}.5 {y}.2v.6" if look == "missing" else ""


def curve_drawing(curve: Curve) -> CurveDrawing:
    """The curve over a logarithmic axis of lengths."""
    lengths = [math.log(max(at, 1)) for at in (*curve.at, *curve.marks.values())] or [0.0]
    first, span = min(lengths), (max(lengths) - min(lengths)) or 1.0
    numbers = [value for line in curve.lines.values() for value in line if math.isfinite(value)]
    low, high = min(0.0, *numbers, 0.0), max(1.0, *numbers, 1.0)

    def across(length: float) -> str:
        share = (math.log(max(length, 1)) - first) / span
        return f"{LEFT + share * (WIDTH - LEFT - RIGHT):.1f}"

    def up(value: float) -> str:
        return f"{HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM):.1f}"

    lines = tuple(
        CurveLine(
            name,
            index % LINE_LOOKS,
            tuple((across(at), up(value)) for at, value in zip(curve.at, values, strict=False) if math.isfinite(value)),
        )
        for index, (name, values) in enumerate(curve.lines.items())
    )
    return CurveDrawing(
        curve,
        lines,
        across=tuple(_apart([(across(at), f"{at:,}") for at in curve.at])),
        up=tuple((up(value), f"{value:.3g}") for value in (low, (low + high) / 2, high)),
        marks=tuple((across(at), f"{name} = {at:,}") for name, at in curve.marks.items()),
        chance=None if curve.chance is None else (up(curve.chance), f"chance, {curve.chance:.2f}"),
    )


def _apart(ticks: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """As many as can be read beside each other."""
    free = -math.inf
    for place, label in ticks:
        if float(place) >= free:
            yield place, label
            free = float(place) + LABEL
