"""The figure of a finding: what should be read and what is, queries x keys, with the wrong cells ringed."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gemma_doctor.charts.figures import DPI, encoded, figure, shown, style
from gemma_doctor.charts.strips import EXTRA, MISSING, READABLE, UNREADABLE
from gemma_doctor.evidence import Bools
from gemma_doctor.finding import Cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CELL = 22  # pixels at most
_LARGEST = (520, 620)  # pixels of the rows and of the columns of one panel
_SMALLEST = (120, 300)
_LEFT, _GAP, _RIGHT, _TOP, _BOTTOM = 70, 70, 30, 70, 92
_LETTER, _LINE = 7.5, 18  # pixels of the title's text
_RING = 12  # pixels at least
_MOST_RINGS = 12  # beyond, they would hide what they ring: only the first cell gets one


def render(cells: Cells, title: str) -> bytes:
    """Two panels side by side, expected and observed, as png.

    Args:
        cells: what to draw.
        title: of the finding; untrusted text, as is the caption.
    """
    expected, observed = _read(cells.expected), _read(cells.observed)
    sizes = zip(expected.shape, _SMALLEST, _LARGEST, strict=True)
    height, width = (int(min(max(count * _CELL, least), most)) for count, least, most in sizes)
    columns = _LEFT + 2 * width + _GAP + _RIGHT
    count = int((expected ^ observed).sum())
    rows, keys = expected.shape
    caption = f"{shown(cells.caption)}; {rows} x {keys} of the cells; {count:,} wrong here"
    lines = [*textwrap.wrap(shown(title), int(columns / _LETTER)), caption]
    full = (columns, _TOP + _LINE * (len(lines) - 1) + height + _BOTTOM)
    with style():
        drawn = figure(*full)
        for row, line in enumerate(lines):
            is_caption = row == len(lines) - 1
            place = 12 / full[0], 1 - (24 + row * _LINE) / full[1]
            drawn.text(*place, line, fontsize=8 if is_caption else 11, color="0.35" if is_caption else "black")
        panels = ("expected by the check", expected, _LEFT), ("observed", observed, _LEFT + width + _GAP)
        for name, read, left in panels:
            axes = drawn.add_axes((left / full[0], _BOTTOM / full[1], width / full[0], height / full[1]))
            _draw(axes, cells, read, expected)
            axes.set_title(name)
        drawn.legend(handles=_legend(expected, observed), loc="lower left", ncols=3, frameon=False)
        return encoded(drawn, "png")


def _read(rows: tuple[str, ...]) -> Bools:
    return np.array([[mark == "#" for mark in row] for row in rows], dtype=bool)


def _draw(axes: Axes, cells: Cells, read: Bools, expected: Bools) -> None:
    extra, missing = read & ~expected, expected & ~read
    colors = np.where(read[..., None], to_rgb(READABLE), to_rgb(UNREADABLE))
    colors[extra], colors[missing] = to_rgb(EXTRA), to_rgb(MISSING)
    queries, keys = read.shape
    top, left = cells.first_query - 0.5, cells.first_key - 0.5
    extent = (left, left + keys, top + queries, top)
    axes.imshow(colors, extent=extent, aspect="auto", interpolation="nearest")
    count = int((extra | missing).sum())
    ringed = count if count <= _MOST_RINGS else 1
    rows, columns = (found[:ringed] for found in (extra | missing).nonzero())
    pixels = max(_RING, 1.3 * min(axes.bbox.height / queries, axes.bbox.width / keys))
    area = (pixels * 72 / DPI) ** 2
    place = columns + cells.first_key, rows + cells.first_query
    axes.scatter(*place, s=area, facecolors="none", edgecolors="black", linewidths=1, clip_on=False, zorder=3)
    axes.set_xlabel("key")
    axes.set_ylabel("query")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _legend(expected: Bools, observed: Bools) -> list[Patch | Line2D]:
    """What is in the picture, and nothing else."""
    extra, missing = observed & ~expected, expected & ~observed
    count = int((extra | missing).sum())
    looks = (
        (expected, READABLE, "read, as expected by the check"),
        (~expected, UNREADABLE, "not read, as expected by the check"),
        (extra, EXTRA, "read, and must not be"),
        (missing, MISSING, "should be read, and is not"),
    )
    entries: list[Patch | Line2D] = [Patch(color=color, label=label) for cells, color, label in looks if cells.any()]
    if count:
        ring = "wrong" if count <= _MOST_RINGS else f"only the first of {count:,} wrong is ringed"
        entries.append(Line2D([], [], color="black", marker="o", markerfacecolor="none", linestyle="none", label=ring))
    return entries
