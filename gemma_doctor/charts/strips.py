"""One image of a picture: the strips of a group of layers, or queries x keys of one layer, with axes and shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gemma_doctor.charts.chart import Chart, Panel
from gemma_doctor.charts.figures import shown
from gemma_doctor.charts.labels import MEAN, named, quoted, share_cells, share_columns
from gemma_doctor.charts.layout import Marks, levels, looks, peaks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAP = colormaps["viridis"]  # told apart by colour-blind eyes, and even in grey
EDGE, EXTRA, MISSING, NOT_ALLOWED, HATCH = "#e66100", "#d7191c", "#ff5fbf", "#bdbdbd", "#dcdcdc"
READABLE, UNREADABLE = "#123570", "#d9d9d9"
COLUMN_WIDTH = 58  # pixels
_BAR = 8  # pixels from the axes to the bar that joins the rows of a layer
_MOST_LABELS = 16
_APART = 0.022  # between two token labels, as a share of the key axis
_NARROWEST_RING = 0.008  # as a share of the key axis


@dataclass(frozen=True)
class Image:
    """Rows of marks on one key axis.

    Attributes:
        chart: that it is of.
        title: above it.
        labels: of every row.
        panels: the layer of every row.
        rows: the marks of all rows.
        stretch: of the key axis.
        is_first: of its group: the text of the strongest keys stands above it, and the names of the shares.
        is_last: of its group: the positions of the keys stand under it.
        has_shares: the means of its layers stand beside it; of a slice, only beside a layer's first head.
    """

    chart: Chart
    title: str
    labels: tuple[str, ...]
    panels: tuple[Panel, ...]
    rows: Marks
    stretch: slice
    is_first: bool
    is_last: bool
    has_shares: bool = True

    @property
    def above(self) -> int:
        """Pixels that its title and token texts need."""
        return 102 if self.is_first else 20

    @property
    def below(self) -> int:
        """Pixels that its positions need."""
        return 24 if self.is_last else 4

    @property
    def start(self) -> float:
        """Left end of the key axis: a key reaches half a position to either side."""
        return float(self.chart.keys[self.stretch.start]) - 0.5

    @property
    def end(self) -> float:
        return float(self.chart.keys[self.stretch.stop - 1]) + 0.5

    @property
    def has_first_token(self) -> bool:
        return self.start < 0 < self.end

    def place(self, column: int) -> float:
        """Left end of a bin; the last bin may reach beyond the last key."""
        return min(self.start + column * self.rows.width, self.end)


def draw(image: Image, axes: Axes) -> None:
    """Everything of an image; `axes` fill its rows exactly."""
    count, bins = image.rows.values.shape
    right = image.start + bins * image.rows.width  # the last bin may reach beyond the last key
    axes.patch.set(facecolor="#f7f7f7", hatch="////", edgecolor=HATCH, linewidth=0)
    axes.imshow(painted(image), extent=(image.start, right, count - 0.5, -0.5), aspect="auto", interpolation="nearest")
    axes.set_xlim(image.start, image.end)
    _edges(image, axes)
    _rings(image, axes)
    _axes(image, axes)
    if image.is_first:
        _tokens(image, axes)
    if image.chart.kind == "attention" and image.has_shares:
        _shares(image, axes)


def painted(image: Image) -> npt.NDArray[np.float64]:
    """Colours of all bins, shape (rows, bins, 4); what was not handed over is transparent."""
    marks, kind = image.rows, image.chart.kind
    colors = np.asarray(MAP(np.nan_to_num(levels(image.chart, marks.values))), dtype=np.float64)
    told = looks(kind, marks)
    if kind == "mask":
        colors[told["read"]] = to_rgba(READABLE)
    colors[told["unread"]] = to_rgba(UNREADABLE if kind == "mask" else NOT_ALLOWED)
    colors[told["absent"], 3] = 0
    colors[told["extra"]] = to_rgba(EXTRA)
    colors[told["missing"]] = to_rgba(MISSING)
    return colors


def _edges(image: Image, axes: Axes) -> None:
    """Where each row's reading should begin, at the edge of a bin; position 0, pads and the query."""
    # not at the exact key: the colours of its bin would stand before the line, where colour means a fault
    for row in np.flatnonzero(image.rows.edges):
        axes.vlines(image.place(int(image.rows.edges[row])), row - 0.5, row + 0.5, color=EDGE, linewidth=2)
    if image.start < -0.5:
        axes.axvspan(image.start, min(-0.5, image.end), facecolor="none", hatch="xxx", edgecolor="#8c8c8c", linewidth=0)
    if image.has_first_token:
        _above(axes, 0, "s")
    if image.chart.is_single_row:
        _above(axes, int(image.chart.queries[0]), "v")
        axes.hlines(np.arange(len(image.labels) - 1) + 0.5, image.start, image.end, color="white", linewidth=1.5)


def _above(axes: Axes, key: int, marker: str) -> None:
    place = axes.get_xaxis_transform()
    axes.plot([key], [1.0], marker=marker, color="black", markersize=4, transform=place, clip_on=False, zorder=6)


def _rings(image: Image, axes: Axes) -> None:
    """Around the stretch of every row that is wrong; wide enough to be seen at any length, and inside the axes."""
    least = (image.end - image.start) * _NARROWEST_RING
    for color, cells in ((EXTRA, image.rows.extra), (MISSING, image.rows.missing)):
        for row in np.flatnonzero(cells.any(axis=1)):
            wrong = np.flatnonzero(cells[row])
            left, right = image.place(int(wrong[0])), image.place(int(wrong[-1]) + 1)
            width = max(right - left, least)
            place = (min(left, image.end - width), row - 0.5), width, 1.0
            axes.add_patch(Rectangle(*place, fill=False, edgecolor=color, linewidth=1.8, clip_on=False, zorder=5))


def _axes(image: Image, axes: Axes) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.tick_params(length=3, pad=2, labelbottom=image.is_last)
    every = max(1, -(-len(image.labels) * 11 // axes.bbox.height))
    axes.set_yticks(range(0, len(image.labels), int(every)), image.labels[:: int(every)])
    for side in axes.spines.values():
        side.set_linewidth(0.5)
    lift = 80 if image.is_first else 5
    axes.annotate(
        image.title, (0, 1), (0, lift), "axes fraction", "offset pixels", fontsize=9, fontweight="bold", ha="left"
    )


def _tokens(image: Image, axes: Axes) -> None:
    """The text of the keys worth naming, as many as do not overlap."""
    chart = image.chart
    taken: list[float] = []
    for index in _worth_naming(image):
        place = (float(chart.keys[index]) - image.start) / (image.end - image.start)
        if len(taken) == _MOST_LABELS or any(abs(place - other) < _APART for other in taken):
            continue
        taken.append(place)
        axes.annotate(
            shown(named(int(chart.keys[index]), quoted(chart.tokens[index]))),
            (place, 1),
            (1, 9),
            "axes fraction",
            "offset pixels",
            fontsize=7,
            rotation=-33,
            rotation_mode="anchor",
            ha="right",
            va="bottom",
        )


def _worth_naming(image: Image) -> Iterator[int]:
    """Indices of keys: the first wrong ones, then the strongest, or the ends of what a mask lets through."""
    wrong = np.flatnonzero((image.rows.extra | image.rows.missing).any(axis=0))
    if len(wrong):
        yield min(image.stretch.start + int(wrong[0]) * image.rows.width, image.stretch.stop - 1)
    panels = {panel.layer: panel for panel in image.panels}.values()
    if image.chart.kind == "mask":
        for panel in panels:
            readable = np.flatnonzero(panel.allowed.any(axis=0))
            yield from (int(readable[0]), int(readable[-1])) if len(readable) else ()
        return
    row = peaks(np.stack([peaks(panel.values) for panel in panels]))
    order = (-row).argsort(kind="stable")
    yield from (int(index) for index in order[: 40 * _MOST_LABELS] if row[index] > 0)


def _shares(image: Image, axes: Axes) -> None:
    """A table at the right of the axes: one line per layer, half way down all of its rows, which a bar joins."""
    columns = share_columns(image.chart)
    if image.is_first:
        _cell(axes, MEAN, len(columns) - 1, None, "0.35", lift=26)
    for column, name in enumerate(columns * image.is_first):
        _cell(axes, name, column, None, "0.35")
    layers = [panel.layer for panel in image.panels]
    for layer, panel in {panel.layer: panel for panel in image.panels}.items():
        first = layers.index(layer)
        last = first + layers.count(layer) - 1
        if last > first:
            bar = [1 + _BAR / axes.bbox.width] * 2, [first - 0.4, last + 0.4]
            axes.plot(*bar, transform=axes.get_yaxis_transform(), color="0.35", linewidth=1, clip_on=False)
        for column, text in enumerate(share_cells(panel.shares, columns) if panel.shares else ()):
            _cell(axes, text, column, (first + last) / 2, EXTRA if text.endswith("!") else "black")
        if len(panel.heads) > 1 and not image.chart.is_single_row:
            # each head has an image of its own, and only the first one has these numbers
            _cell(axes, f"layer {layer}, all heads", len(columns) - 1, (first + last) / 2, "0.35", lift=14)


def _cell(axes: Axes, text: str, column: int, row: float | None, color: str, lift: int | None = None) -> None:
    """In the line of a row, or above the axes."""
    at, usual = ((1.0, 1.0), 8) if row is None else ((1.0, row), 0)
    place = axes.transAxes if row is None else axes.get_yaxis_transform()
    weight = "bold" if color == EXTRA else "normal"
    offset = ((column + 1) * COLUMN_WIDTH, usual if lift is None else lift)
    axes.annotate(
        text, at, offset, place, "offset pixels", color=color, ha="right", va="center", fontsize=8, fontweight=weight
    )
