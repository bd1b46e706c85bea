"""The chart as png, svg or pdf: one strip per layer, or queries x keys of every layer; header and legend."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from gemma_doctor.charts import strips
from gemma_doctor.charts.chart import Chart, Panel
from gemma_doctor.charts.figures import encoded, figure, shown, style
from gemma_doctor.charts.labels import facts, meanings, reach, title
from gemma_doctor.charts.layout import LOWEST, Group, Marks, faults, groups, joined, largest, marks, seen
from gemma_doctor.charts.strips import Image
from gemma_doctor.evidence import Floats32

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, LEFT, RIGHT = 1500, 120, 370  # pixels: of all, and of the margins beside the key axis
MOST_BINS = 330  # 3 pixels each, so that a single bright one is seen
MOST_STRIPS = 200  # more heads than that are joined into one strip per layer
MOST_QUERIES = 64  # per image, fewer if there are many images
_HIGHEST = 2600  # pixels of all images together
_LOWEST = 18  # pixels of one image
_LINE = 16  # pixels of a line of text
_LINE_LENGTH = 215


@dataclass(frozen=True)
class _Block:
    """A part of the figure: `draw` gets axes of that height, with room above and below them (pixels)."""

    height: int
    above: int
    below: int
    draw: Callable[[Axes], None]


def render(chart: Chart, form: str) -> bytes:
    """The picture.

    Args:
        chart: what to draw.
        form: "png", "svg" or "pdf".
    """
    with style():
        images = [image for group in groups(chart) for image in _images(chart, group)]
        blocks = [_header(chart), *_body(chart, images), _legend(chart, images)]
        height = sum(one.above + one.height + one.below for one in blocks)
        drawn = figure(WIDTH, height)
        top = height
        for block in blocks:
            top -= block.above + block.height
            place = (LEFT / WIDTH, top / height, (WIDTH - LEFT - RIGHT) / WIDTH, block.height / height)
            block.draw(drawn.add_axes(place))
            top -= block.below
        return encoded(drawn, form)


def _header(chart: Chart) -> _Block:
    wrong = [f"WRONG  {sentence}" for sentence in faults(chart)]
    lines = [(chart.headline, "black"), (facts(chart), "0.35"), *((f"note: {note}", "0.35") for note in chart.notes)]
    lines += [(sentence, strips.EXTRA) for sentence in wrong]
    wrapped = [(part, color) for text, color in lines for part in textwrap.wrap(shown(text), _LINE_LENGTH)]

    def draw(axes: Axes) -> None:
        axes.axis("off")
        axes.annotate(
            shown(title(chart)), (0, 1), (12 - LEFT, 0), "axes fraction", "offset pixels", fontsize=13, va="top"
        )
        for row, (text, color) in enumerate(wrapped):
            offset = (12 - LEFT, -28 - row * _LINE)
            axes.annotate(text, (0, 1), offset, "axes fraction", "offset pixels", color=color, va="top")

    return _Block(28 + _LINE * len(wrapped), 12, 6, draw)


def _body(chart: Chart, images: list[Image]) -> Iterator[_Block]:
    rows = sum(len(image.labels) for image in images)
    room = _HIGHEST - sum(image.above + image.below for image in images)
    lowest, highest = (10, 26) if chart.is_single_row else (1, 12)
    row = min(highest, max(lowest, room // rows))
    for image in images:
        pixels = max(row * len(image.labels), _LOWEST)
        yield _Block(pixels, image.above, image.below, partial(strips.draw, image))


def _images(chart: Chart, group: Group) -> Iterator[Image]:
    """One image of all strips; of a slice of queries one image per layer and head."""
    join = sum(len(panel.heads) for panel in chart.panels) > (MOST_STRIPS if chart.is_single_row else MOST_STRIPS // 4)
    parts = [part for panel in group.panels for part in _heads(panel, join)]
    most = min(MOST_QUERIES, max(8, _HIGHEST // (3 * len(chart.panels))))
    held = [marks(chart, panel, values, group.stretch, (most, MOST_BINS)) for panel, _, values in parts]
    note = _note(group, held[0], join, chart)
    if chart.is_single_row:
        labels = tuple(_label(panel, head) for panel, head, _ in parts)
        panels = tuple(panel for panel, _, _ in parts)
        yield Image(chart, group.title + note, labels, panels, _stacked(held), group.stretch, True, True)
        return
    for number, ((panel, head, _), one) in enumerate(zip(parts, held, strict=True)):
        labels = tuple(f"{query:,}" for query in chart.queries[:: one.height])
        name = f"{shown(panel.title)}{f', head {head}' if head else ''}{note if number == 0 else ''}"
        yield Image(
            chart,
            name,
            labels,
            (panel,) * len(labels),
            one,
            group.stretch,
            number == 0,
            number == len(parts) - 1,
            has_shares=number == 0 or parts[number - 1][0] is not panel,
        )


def _heads(panel: Panel, join: bool) -> list[tuple[Panel, str, Floats32]]:
    """Panel, name of the head ("" if there is one), values of shape (q, k)."""
    if join or len(panel.heads) == 1:
        return [(panel, "", joined(panel.values))]
    return [(panel, head, values) for head, values in zip(panel.heads, panel.values, strict=True)]


def _label(panel: Panel, head: str) -> str:
    layer = "stack" if panel.layer is None else f"layer {panel.layer}"
    return f"{layer} head {head}" if head else layer


def _note(group: Group, one: Marks, join: bool, chart: Chart) -> str:
    first, last = chart.keys[group.stretch][[0, -1]]
    said = [reach(group.panels[0])] if chart.kind == "influence" else []
    said += [f"keys {first:,} to {last:,}, all others are unread"] if group.is_part else []
    if one.width > 1 or one.height > 1:
        rows = f" x {one.height} queries" if one.height > 1 else ""
        said.append(f"a mark is {one.width} keys{rows} and shows the largest")
    if join and len(group.panels[0].heads) > 1:
        said.append("the largest of all heads")
    return "".join(f"; {part}" for part in said)


def _stacked(parts: list[Marks]) -> Marks:
    rows = zip(*((one.values, one.allowed, one.extra, one.missing) for one in parts), strict=True)
    values, allowed, extra, missing = map(np.concatenate, rows)
    return Marks(values, allowed, extra, missing, parts[0].width, parts[0].height)


def _legend(chart: Chart, images: list[Image]) -> _Block:
    """What is in the picture, and nothing else."""
    drawn, said = seen(chart.kind, (image.rows for image in images)), meanings(chart.kind)
    is_mask = chart.kind == "mask"
    entries: list[Patch | Line2D] = []
    if "edge" in drawn:
        entries.append(Line2D([], [], color=strips.EDGE, linewidth=2, label=said["edge"]))
    if chart.is_single_row:
        entries.append(
            Line2D([], [], color="black", marker="v", linestyle="none", markersize=5, label="the query itself")
        )
    if any(image.has_first_token for image in images):
        entries.append(Line2D([], [], color="black", marker="s", linestyle="none", markersize=4, label="position 0"))
    if "absent" in drawn:
        entries.append(Patch(facecolor="#f7f7f7", hatch="////", edgecolor=strips.HATCH, label=said["absent"]))
    colors = {"unread": strips.UNREADABLE if is_mask else strips.NOT_ALLOWED}
    colors |= {"extra": strips.EXTRA, "missing": strips.MISSING}
    colors |= {"read": strips.READABLE} if is_mask else {}  # other kinds have a bar of colours
    entries += [Patch(color=color, label=said[look]) for look, color in colors.items() if look in drawn]
    if any(image.start < -0.5 for image in images):
        entries.append(Patch(facecolor="white", hatch="xxx", edgecolor="#8c8c8c", label="left pads"))

    def draw(axes: Axes) -> None:
        axes.axis("off")
        axes.legend(handles=entries, loc="upper left", bbox_to_anchor=(0.33, 1.0), ncols=4, frameon=False, borderpad=0)
        if chart.kind != "mask":
            _color_bar(chart, axes)

    return _Block(40, 14, 22, draw)


def _color_bar(chart: Chart, axes: Axes) -> None:
    top = largest(chart)
    norm = LogNorm(LOWEST, 1) if chart.scale == "log" else Normalize(0, top)
    name = "gradient, of the row's largest" if chart.kind == "influence" else "weight, share of the row"
    scale = f"log: {LOWEST:g} and less look alike" if chart.scale == "log" else "linear"
    bar = axes.inset_axes((0.0, 0.55, 0.3, 0.35))
    mapped = ScalarMappable(norm, strips.MAP)
    plain = FuncFormatter(lambda value, _: f"{value:g}")  # the usual one of a log scale is a formula
    axes.figure.colorbar(mapped, cax=bar, orientation="horizontal", format=plain, label=f"{name} ({scale})")
    bar.xaxis.set_minor_formatter(NullFormatter())
