"""Charts of what positions read: the data (chart.py), and one file per output format. No torch here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemma_doctor.charts.chart import Chart

FORMATS = ("png", "svg", "pdf", "html", "json", "csv", "npz")


def render(chart: Chart, form: str) -> bytes:
    """The chart as a file of one of FORMATS; the same chart gives the same bytes.

    Raises:
        ValueError: `form` is none of them.
    """
    # imported here: matplotlib takes a second, and only pictures need it
    if form in ("png", "svg", "pdf"):
        from gemma_doctor.charts.picture import render as picture

        return picture(chart, form)
    if form == "html":
        from gemma_doctor.charts.page import render as page

        return page(chart).encode()
    if form in FORMATS:
        from gemma_doctor.charts.data import render as data

        return data(chart, form)
    raise ValueError(f"no such format: {form!r}; there are {', '.join(FORMATS)}")
