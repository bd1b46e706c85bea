"""The chart for a terminal: one line of marks per layer (or per query of a slice), then where the weight goes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.color import ColorSystem
from rich.style import Style

from gemma_doctor.charts.chart import Chart, Panel
from gemma_doctor.charts.labels import (
    MEAN,
    facts,
    key_name,
    quoted,
    reach,
    share_cells,
    share_columns,
    steps,
    strongest,
    strongest_title,
    title,
)
from gemma_doctor.charts.layout import LOWEST, Group, Marks, faults, groups, levels, marks, peaks
from gemma_doctor.evidence import Floats32
from gemma_doctor.report.escape import escape
from gemma_doctor.report.lines import BLANK, NARROWEST, Line, draw

PIPE_WIDTH = 100
_WIDEST_CELL = 9  # columns of one key in a short text
_TEXT_CELL = 6  # from here on the token's text fits under it
_MOST_ROWS = 240  # lines of marks in all, if a slice of queries is shown
_WRAPPED_PANELS = 6  # with more, lines are cut at the terminal's edge
# "+" and "!" are kept for what is wrong
_RAMP = ".:-=*%#@"
_BLOCKS = "▁▂▃▄▅▆▇█"
_SHADES = tuple(Style.parse(f"color({code})") for code in (60, 61, 67, 73, 78, 114, 149, 227))  # dark to light
_ALARM = Style.parse("bold white on red")
_EDGE = Style.parse("bold cyan")


def render(chart: Chart, width: int | None, color: bool, blocks: bool = True) -> str:
    """The chart as text.

    Args:
        chart: what to show.
        width: columns of the terminal; None for a pipe: 100 columns of marks, text neither wrapped nor cut.
        color: ANSI colours and block characters; else plain ASCII marks.
        blocks: the stream can encode block characters; else colours mark ASCII.
    """
    ramp = _BLOCKS if color and blocks else _RAMP
    room = max(width or PIPE_WIDTH, NARROWEST)
    parts = [draw(_header(chart), width, color)]
    for group in groups(chart):
        parts += [draw(_heading(group, chart), width, color), *_Strips(chart, group, room, ramp, color).lines()]
    parts.append(draw((*_legend(chart, ramp), *_shares(chart, width), *_alarms(chart)), width, color))
    return "".join(parts)


def _header(chart: Chart) -> Iterator[Line]:
    yield Line("gemma-doctor heatmap  ", title(chart), style="bold", indent=2)
    yield Line(body=chart.headline)
    yield Line(body=facts(chart))
    for note in chart.notes:
        yield Line("note: ", note, style="yellow")


def _heading(group: Group, chart: Chart) -> Iterator[Line]:
    yield BLANK
    first, last = chart.keys[group.stretch][[0, -1]]
    part = f"; keys {first:,} to {last:,}, all others are unread" if group.is_part else ""
    yield Line(group.title, part, style="bold")


class _Strips:
    """The lines of marks of one group, and the key axis under them."""

    def __init__(self, chart: Chart, group: Group, width: int, ramp: str, color: bool) -> None:
        self.chart, self.group, self.ramp, self.color = chart, group, ramp, color
        self.rows = list(_rows(chart, group))
        self.margin = max(len(label) for label, _, _ in self.rows)
        if not chart.is_single_row:
            self.margin = max(self.margin, len(f"{chart.queries[-1]:,}") + 4)
        self.most = (max(4, _MOST_ROWS // len(chart.panels)), width - self.margin - 3)
        keys = group.stretch.stop - group.stretch.start
        self.cell = max(1, min(_WIDEST_CELL, self.most[1] // keys))
        self.edge = 0
        self.width = 1

    def lines(self) -> Iterator[str]:
        for label, panel, values in self.rows:
            shown = marks(self.chart, panel, values, self.group.stretch, self.most)
            self.edge, self.width = int(shown.edges[0]), shown.width
            if self.chart.is_single_row:
                yield self._strip(label, shown, 0)
                continue
            yield f"{label}\n"
            for row in range(len(shown.values)):
                yield self._strip(f"{self.chart.queries[row * shown.height]:,}", shown, row)
        yield from self._axis(shown.values.shape[1])
        held = [f"{shown.width} keys a mark"] * (shown.width > 1) + [f"{shown.height} queries a line"] * (
            shown.height > 1
        )
        if held:
            yield f"{' ' * (self.margin + 2)}{', '.join(held)}: the largest shows\n"

    def _strip(self, label: str, shown: Marks, row: int) -> str:
        cells = list(self._cells(shown, row))
        cells.insert(int(shown.edges[row]), ("|", _EDGE))
        return f"{label:>{self.margin}}  {_joined(cells, self.color)}\n"

    def _cells(self, shown: Marks, row: int) -> Iterator[tuple[str, Style]]:
        bright = levels(self.chart, shown.values[row])
        for column, level in enumerate(bright):
            if shown.missing[row, column] or shown.extra[row, column]:
                yield ("+" if shown.extra[row, column] else "!") * self.cell, _ALARM
            elif np.isnan(level) or not (shown.allowed[row, column] or level > 0):
                yield " " * self.cell, Style.null()
            elif self.chart.kind == "mask":
                yield ("#" if level > 0 else ".") * self.cell, _SHADES[4]
            else:
                step = min(int(level * len(self.ramp)), len(self.ramp) - 1)
                yield self.ramp[step] * self.cell, _SHADES[step]

    def _axis(self, bins: int) -> Iterator[str]:
        """A line with ticks, "p" for pads and "q" for the query; the positions under it; short texts in full."""
        keys = self.chart.keys[self.group.stretch]
        starts = keys[:: self.width]
        line, words = [], ""
        apart = steps(len(keys), max(1, bins * self.cell // (len(f"{keys[-1]:,}") + 3)))
        for column, start in enumerate(starts):
            ticks = [key for key in keys[column * self.width :][: self.width] if key % apart == 0]
            at = column * self.cell + (column >= self.edge)
            name = f"{ticks[0]:,} " if ticks else ""
            if ticks and len(words) <= at < self.most[1] + 2 - len(name):
                words = words.ljust(at) + name
            line.append(("+" if ticks else "p" if start < 0 else "-").ljust(self.cell, "p" if start < 0 else "-"))
        if self.chart.is_single_row:
            query = (int(self.chart.queries[0]) - int(keys[0])) // self.width
            line[query] = "q".ljust(self.cell, "q")
        line.insert(self.edge, "|")
        indent = " " * (self.margin + 2)
        yield f"{indent}{''.join(line)}\n"
        yield f"{indent}{words}".rstrip() + "\n"
        tokens = self.chart.tokens[self.group.stretch]
        if self.cell >= _TEXT_CELL and any(tokens):
            texts = [set_cell_size(quoted(token), self.cell - 1) + " " for token in tokens]
            texts.insert(self.edge, " ")
            yield f"{indent}{''.join(texts)}".rstrip() + "\n"


def _rows(chart: Chart, group: Group) -> Iterator[tuple[str, Panel, Floats32]]:
    """Label, panel and values of shape (q, k) of every strip."""
    for panel in group.panels:
        for head, values in zip(panel.heads, panel.values, strict=True):
            layer = "stack" if panel.layer is None else f"layer {panel.layer}"
            alone = len(panel.heads) == 1
            yield (f"  {layer}" if alone else f"  {layer} head {head}"), panel, values


def _joined(cells: list[tuple[str, Style]], color: bool) -> str:
    if not color:
        return "".join(text for text, _ in cells).rstrip()
    return "".join(style.render(text, color_system=ColorSystem.EIGHT_BIT) for text, style in cells)


def _legend(chart: Chart, ramp: str) -> Iterator[Line]:
    yield BLANK
    if chart.kind == "mask":
        marks_of = "# readable, . not readable, ! should be readable and is not, + readable and should not be"
    else:
        scale = f"log, from {LOWEST:g} of the row" if chart.scale == "log" else "linear"
        marks_of = f"{ramp} mean more, {scale}; + read and must not be, ! lacking; blank: not read"
    edge = "of reach" if chart.kind == "influence" else "of the window, or of what may be read"
    axis = ["q the query"] * chart.is_single_row + ["p left pads"] * bool((chart.keys < 0).any())
    on_axis = f"; axis: {', '.join(axis)}" if axis else ""
    yield Line("marks  ", f"{marks_of}; | start {edge}{on_axis}", style="dim")


def _shares(chart: Chart, width: int | None) -> Iterator[Line]:
    """Per layer: where the weight goes, and the strongest keys."""
    if chart.kind == "mask":
        return
    yield BLANK
    names: tuple[str, ...] = ()
    if chart.kind == "attention":
        names = share_columns(chart)
        yield Line("where the weight goes", f": {MEAN}; beyond must be 0", style="bold")
    columns = "".join(f"{name:>8}" for name in names)
    yield Line(f"  {'layer':10}{columns}  ", strongest_title(chart, _is_by_head(chart)), style="bold")
    for panel in chart.panels:
        yield from _layer(chart, panel, names, width)


def _is_by_head(chart: Chart) -> bool:
    return len(chart.panels) == 1 and len(chart.panels[0].heads) > 1


def _layer(chart: Chart, panel: Panel, columns: tuple[str, ...], width: int | None) -> Iterator[Line]:
    one = panel.shares
    cells = "".join(f"{part:>8}" for part in share_cells(one, columns)) if one else ""
    label = f"  {_short(panel):10}{cells}  "
    room = None if width is None or len(chart.panels) <= _WRAPPED_PANELS else width - len(label)
    by_head = _is_by_head(chart)
    # in the place of keys, which stand beside each head
    keys = f"({MEAN})" if by_head else _strongest(chart, peaks(panel.values), room)
    yield Line(label, keys, style="bold red" if one and one.beyond > 0 else "")
    for head, values in zip(panel.heads * by_head, panel.values, strict=False):
        yield Line(f"    head {head:5}{' ' * len(cells)}  ", _strongest(chart, peaks(values), room))
    if panel.reach is not None:
        yield Line("  ", f"{reach(panel)}, as the pattern of layers allows")


def _short(panel: Panel) -> str:
    if panel.layer is None:
        return "stack"
    return f"{panel.layer:2} {escape(panel.kind.removesuffix('_attention'))[:7]}"


def _strongest(chart: Chart, row: Floats32, room: int | None) -> str:
    """As many of the strongest keys as fit; at least one."""
    found = [key_name(*key) for key in strongest(chart, row)]
    while room is not None and len(found) > 1 and cell_len(", ".join(found)) > room:
        found.pop()
    return ", ".join(found)


def _alarms(chart: Chart) -> Iterator[Line]:
    found = list(faults(chart))
    if found:
        yield BLANK
    for sentence in found:
        yield Line("WRONG  ", sentence, style="bold red")
