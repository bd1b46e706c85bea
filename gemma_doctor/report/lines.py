"""Lines of a text report: a label with a style, a body that wraps under itself."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gemma_doctor.report.escape import escape

WIDEST = 140
NARROWEST = 40


@dataclass(frozen=True)
class Line:
    """One line before it is laid out.

    Attributes:
        label: what stands on the left, spaces included.
        body: untrusted text; it is escaped, and wraps under its own first column, or at `indent`.
        style: of the label, in rich's words.
        body_style: of the body.
        one_line: cut the body where it would wrap (a terminal only; a pipe gets all of it).
        indent: columns in front of wrapped pieces, None for "as wide as the label".
    """

    label: str = ""
    body: str = ""
    style: str = ""
    body_style: str = ""
    one_line: bool = False
    indent: int | None = None


BLANK = Line()


def is_cut(line: Line, width: int | None) -> bool:
    """True if `draw` would cut the line."""
    return line.one_line and width is not None and cell_len(line.label + escape(line.body)) > min(width, WIDEST)


def _laid_out(line: Line, console: Console, width: int | None) -> Text:
    body = escape(line.body)
    text = Text.assemble((line.label, line.style), (body, line.body_style))
    if width is None:
        text.rstrip()
        return text
    room = max(min(width, WIDEST), NARROWEST)
    if is_cut(line, width):
        text.truncate(room - 4)
        text.rstrip()
        return text.append(" ...")
    indent = cell_len(line.label) if line.indent is None else line.indent
    pieces = _wrapped(text, indent, console, room)
    for piece in pieces:
        piece.rstrip()
    return Text("\n" + " " * indent).join(pieces)


def _wrapped(text: Text, indent: int, console: Console, room: int) -> list[Text]:
    """The text in pieces; the first is as wide as the room, the others leave place for the indent."""
    first = text.wrap(console, room, overflow="fold")[0]
    rest = text[len(first.plain) :]
    rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
    return [first, *(rest.wrap(console, max(room - indent, NARROWEST // 2), overflow="fold") if rest.plain else ())]


def draw(lines: Iterable[Line], width: int | None, color: bool) -> str:
    """Lay lines out.

    Args:
        lines: what to lay out.
        width: columns of the terminal; None (a pipe) wraps and cuts nothing.
        color: write ANSI colour codes.
    """
    console = Console(
        file=io.StringIO(),
        width=WIDEST,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as captured:
        for line in lines:
            console.print(_laid_out(line, console, width), soft_wrap=True)
    return captured.get()
