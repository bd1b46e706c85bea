"""The chart for a terminal: one line of marks per layer (or per query of a slice), then where the weight goes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.color import ColorSystem
from rich.style import Style

from gemma_doctor.charts.chart import Chart, Panel
from gemma_doctor.charts.labels import facts, key_name, quoted, share_cells, share_columns, steps, strongest, title
from gemma_doctor.charts.layout import LOWEST, Group, Marks, faults, groups, joined, levels, marks
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


def render(chart: Chart, width: int | None, color: bool) -> str:
    """The chart as text.

    Args:
        chart: what to show.
        width: columns of the terminal; None for a pipe: 100 columns of marks, text neither wrapped nor cut.
        color: ANSI colours and block characters; else plain ASCII marks.
    """
    room = max(width or PIPE_WIDTH, NARROWEST)
    parts = [draw(_header(chart), width, color)]
    for group in groups(chart):
        parts += [draw(_heading(group, chart), width, color), *_Strips(chart, group, room, color).lines()]
    parts.append(draw((*_legend(chart, color), *_shares(chart, width), *_alarms(chart)), width, color))
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

    def __init__(self, chart: Chart, group: Group, width: int, color: bool) -> None:
        self.chart, self.group, self.color = chart, group, color
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
            self.edge, self.width = _edge(shown, 0), shown.width
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
        edge = _edge(shown, row)
        cells.insert(edge, ("|", _EDGE))
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
                step = min(int(level * len(_RAMP)), len(_RAMP) - 1)
                yield (_BLOCKS if self.color else _RAMP)[step] * self.cell, _SHADES[step]

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
        if self.cell >= _TEXT_CELL:
            texts = [
                set_cell_size(quoted(token), self.cell - 1) + " " for token in self.chart.tokens[self.group.stretch]
            ]
            texts.insert(self.edge, " ")
            yield f"{indent}{''.join(texts)}".rstrip() + "\n"


def _rows(chart: Chart, group: Group) -> Iterator[tuple[str, Panel, Floats32]]:
    """Label, panel and values of shape (q, k) of every strip."""
    for panel in group.panels:
        for head, values in zip(panel.heads, panel.values, strict=True):
            layer = "stack" if panel.layer is None else f"layer {panel.layer}"
            alone = len(panel.heads) == 1
            yield (f"  {layer}" if alone else f"  {layer} head {head}"), panel, values


def _edge(shown: Marks, row: int) -> int:
    """The first bin that the query may read."""
    return int(shown.allowed[row].argmax())


def _joined(cells: list[tuple[str, Style]], color: bool) -> str:
    if not color:
        return "".join(text for text, _ in cells).rstrip()
    return "".join(style.render(text, color_system=ColorSystem.EIGHT_BIT) for text, style in cells)


def _legend(chart: Chart, color: bool) -> Iterator[Line]:
    yield BLANK
    if chart.kind == "mask":
        marks_of = "# readable, . not readable, ! should be readable and is not, + readable and should not be"
    else:
        scale = f"log, from {LOWEST:g} of the row" if chart.scale == "log" else "linear"
        marks_of = (
            f"{_BLOCKS if color else _RAMP} mean more, {scale}; + read and must not be, ! lacking; blank: not read"
        )
    edge = "of reach" if chart.kind == "influence" else "of the window, or of what may be read"
    yield Line("marks  ", f"{marks_of}; | start {edge}; axis: q the query, p left pads", style="dim")


def _shares(chart: Chart, width: int | None) -> Iterator[Line]:
    """Per layer: where the weight goes, and the strongest keys."""
    if chart.kind == "mask":
        return
    yield BLANK
    names: tuple[str, ...] = ()
    if chart.kind == "attention":
        names = share_columns(chart)
        yield Line("where the weight goes", ": mean of all heads and shown queries; beyond must be 0", style="bold")
    columns = "".join(f"{name:>8}" for name in names)
    relative = " (of the largest)" if chart.kind == "influence" else ""
    yield Line(f"  {'layer':10}{columns}  ", f"strongest keys{relative}", style="bold")
    for panel in chart.panels:
        yield from _layer(chart, panel, names, width)


def _layer(chart: Chart, panel: Panel, columns: tuple[str, ...], width: int | None) -> Iterator[Line]:
    one = panel.shares
    cells = "".join(f"{part:>8}" for part in share_cells(one, columns)) if one else ""
    label = f"  {_short(panel):10}{cells}  "
    room = None if width is None or len(chart.panels) <= _WRAPPED_PANELS else width - len(label)
    by_head = len(chart.panels) == 1 and len(panel.heads) > 1
    keys = "" if by_head else _strongest(chart, joined(panel.values).max(axis=0), room)
    yield Line(label, keys, style="bold red" if one and one.beyond > 0 else "")
    for head, values in zip(panel.heads * by_head, panel.values, strict=False):
        yield Line(f"    head {head:5}{' ' * len(cells)}  ", _strongest(chart, values.max(axis=0), room))
    if panel.reach is not None:
        yield Line("  reach     ", f"from token {panel.reach[-1]:,} on, as the pattern of layers allows")


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
