"""The figure of a curve: one line for each way of getting it, over a length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from gemma_doctor.charts.figures import encoded, figure, shown, style
from gemma_doctor.finding import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (760, 420)  # pixels
# told apart without colour, and seen where one line lies on the other
_LOOKS = (("#1f4e9c", "o", "-"), ("#c2571a", "x", "--"))  # colour, marker, line


def render(curve: Curve) -> bytes:
    """The curve as png."""
    width, height = _SIZE
    with style():
        drawn = figure(width, height)
        drawn.text(12 / width, 1 - 24 / height, shown(curve.caption), fontsize=11)
        axes = drawn.add_axes((70 / width, 60 / height, (width - 100) / width, (height - 120) / height))
        _draw(axes, curve)
        return encoded(drawn, "png")


def _draw(axes: Axes, curve: Curve) -> None:
    for (name, values), (color, marker, line) in zip(curve.lines.items(), _LOOKS, strict=False):
        axes.plot(
            curve.at, values, color=color, marker=marker, linestyle=line, markersize=6, linewidth=1.2, label=shown(name)
        )
    for name, length in curve.marks.items():
        axes.axvline(length, color="black", linewidth=1, linestyle=":", label=f"{shown(name)} = {length:,}")
    if curve.chance is not None:
        axes.axhline(curve.chance, color="0.6", linewidth=1, linestyle=":", label=f"chance, {curve.chance:.2f}")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(curve.at))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylim(0, 1.05)
    axes.set_xlabel(shown(curve.across))
    axes.set_ylabel(shown(curve.up))
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.13), ncols=4, frameon=False)
