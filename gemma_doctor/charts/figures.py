"""Matplotlib without its global state: figures that are the same everywhere, text that no font can break."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Iterator
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font

from gemma_doctor.report.escape import escape

DPI = 100
FONT = "DejaVu Sans"  # comes with matplotlib
_METADATA: dict[str, dict[str, str | None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Matplotlib's own defaults, whatever the user has set; token text is never parsed as mathematics."""
    # typed loosely: matplotlib's stubs list the names only in its newer releases
    wanted: Any = {name: value for name, value in matplotlib.rcParamsDefault.items() if not name.startswith("backend")}
    wanted |= {"font.family": FONT, "font.size": 8, "text.parse_math": False, "svg.hashsalt": "gemma-doctor"}
    with matplotlib.rc_context(wanted):
        yield


def figure(width: int, height: int) -> Figure:
    """An empty figure of that many pixels that needs no display."""
    made = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
    FigureCanvasAgg(made)
    return made


def encoded(drawn: Figure, form: str) -> bytes:
    """The figure as "png", "svg" or "pdf"; no date and no version in it."""
    file = io.BytesIO()
    drawn.savefig(file, format=form, dpi=DPI, metadata=_METADATA[form])
    return file.getvalue()


def shown(text: str) -> str:
    """`text` with what the font cannot draw written as Python writes it."""
    has = _font().get_char_index
    return "".join(one if has(ord(one)) else one.encode("unicode_escape").decode("ascii") for one in escape(text))


@functools.cache
def _font() -> matplotlib.ft2font.FT2Font:
    return get_font(findfont(FONT))
