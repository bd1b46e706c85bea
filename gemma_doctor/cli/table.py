"""Tables in plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> str:
    """Columns two spaces apart, one row a line; on a terminal the last column wraps under itself.

    Args:
        head: names of the columns.
        rows: cells, as many as the head has.
        width: columns of the terminal, None for a pipe.
    """
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head) - 1)]
    indent = sum(widths) + 2 * len(widths)
    if width is not None and width - indent < 20:  # no room beside the others: the last column goes below
        indent = 4
    lines = []
    for row in (head, *rows):
        start = "  ".join(f"{cell:<{room}}" for cell, room in zip(row, widths, strict=False)) + "  "
        if width is None:
            lines.append((start + row[-1]).rstrip())
            continue
        pieces = textwrap.wrap(row[-1], max(width - indent, 20)) or [""]
        first = [start + pieces.pop(0)] if len(start) == indent else [start]
        lines += [line.rstrip() for line in (*first, *(" " * indent + piece for piece in pieces))]
    return "\n".join(lines) + "\n"
