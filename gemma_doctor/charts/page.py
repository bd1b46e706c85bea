"""The chart as one HTML file: strips that say what is under the pointer, and a table that needs no script.

Weights travel as 16 bits per cell, base64, little endian: bit 15 wrong, bit 14 may be read, bits 0 to 13 the weight: 0
not handed to the kernel, 1 exactly 0, else its logarithm from 1e-8 to 1 in 16,381 steps (0.06 % each way).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator
from importlib import resources
from string import Template

import numpy as np

from gemma_doctor.charts.chart import Chart, Panel
from gemma_doctor.charts.labels import (
    MEAN,
    facts,
    key_name,
    meanings,
    quoted,
    reach,
    share_cells,
    share_columns,
    strongest,
    strongest_title,
    title,
)
from gemma_doctor.charts.layout import LOWEST, Group, Marks, faults, groups, largest, marks, peaks, seen
from gemma_doctor.report.escape import escape

_DECADES = 8
_WRONG, _ALLOWED, _LARGEST_CODE = 1 << 15, 1 << 14, (1 << 14) - 1
_MOST_CELLS = 800_000  # 2.1 MB; beyond, keys are joined in bins
_MOST_QUERIES = 64
_PRECISION = "Weights are kept to 0.1 %; those below 1e-8 show as 1e-8."


def render(chart: Chart) -> str:
    """The page; it loads nothing, and runs no script but its own."""
    style, script = _part("page.css"), _part("page.js")
    own = f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    policy = f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
    text = html.escape
    columns = ("layer", "kind", *(share_columns(chart) if chart.kind == "attention" else ()), _last_column(chart))
    return Template(_part("page.html")).substitute(
        policy=policy,
        style=style,
        script=script,
        title=text(title(chart)),
        headline=text(escape(chart.headline)),
        facts=text(facts(chart)),
        notes="\n".join(f"<p>note: {text(escape(note))}</p>" for note in chart.notes),
        faults="\n".join(f'<p class="wrong">WRONG: {text(escape(sentence))}</p>' for sentence in faults(chart)),
        heading="By layer" if chart.kind != "attention" else f"Where the weight goes: {MEAN}",
        columns="".join(f"<th>{text(one)}</th>" for one in columns),
        rows="\n".join(_rows(chart)),
        precision="" if chart.kind == "mask" else _PRECISION,
        data=_data(chart),
    )


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _last_column(chart: Chart) -> str:
    return "readable" if chart.kind == "mask" else strongest_title(chart)


def _rows(chart: Chart) -> Iterator[str]:
    """The table of shares."""
    columns = share_columns(chart)
    for panel in chart.panels:
        shares = share_cells(panel.shares, columns) if panel.shares else ()
        row = peaks(panel.values)
        if chart.kind == "mask":
            last = f"{int((row > 0).sum()):,} of {int(panel.allowed.any(axis=0).sum()):,} keys"
        else:
            last = ", ".join(key_name(*key) for key in strongest(chart, row))
        layer = "whole stack" if panel.layer is None else str(panel.layer)
        cells = (layer, escape(panel.kind.removesuffix("_attention")), *shares, last)
        marked = ' class="wrong"' if panel.shares and panel.shares.beyond > 0 else ""
        yield f"<tr{marked}>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"


def _data(chart: Chart) -> str:
    """What the script reads, as JSON in which nothing can end the script element."""
    strips = sum(len(panel.heads) for panel in chart.panels) * min(len(chart.queries), _MOST_QUERIES)
    most = _MOST_QUERIES, max(1, _MOST_CELLS // strips)
    parts = [(group, [*_strips(chart, group, most)]) for group in groups(chart)]
    content = {
        "kind": chart.kind,
        "scale": chart.scale,
        "lowest": LOWEST,
        "largest": largest(chart),
        "decades": _DECADES,
        "first": int(chart.keys[0]),
        "tokens": [quoted(token) for token in chart.tokens],
        "queries": chart.queries.tolist(),
        "groups": [_group(group, strips, chart) for group, strips in parts],
        "legend": [*_legend(chart.kind, seen(chart.kind, (one for _, strips in parts for _, _, one in strips)))],
    }
    text = json.dumps(content, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _strips(chart: Chart, group: Group, most: tuple[int, int]) -> Iterator[tuple[Panel, str, Marks]]:
    """Panel, head and marks of every strip."""
    for panel in group.panels:
        for head, values in zip(panel.heads, panel.values, strict=True):
            yield panel, head, marks(chart, panel, values, group.stretch, most)


def _group(group: Group, strips: list[tuple[Panel, str, Marks]], chart: Chart) -> dict[str, object]:
    panels = []
    for panel, head, one in strips:
        label = "whole stack" if panel.layer is None else f"layer {panel.layer}"
        label += f" head {head}" if len(panel.heads) > 1 else ""
        panels.append({"label": label, "name": f"{escape(panel.title)}, head {head}", "codes": _codes(one)})
    *_, one = strips[0]
    first, last = chart.keys[group.stretch][[0, -1]]
    part = f"; keys {first:,} to {last:,}, all others are unread" if group.is_part else ""
    part += f"; {reach(group.panels[0])}" if chart.kind == "influence" else ""
    held = (
        f"; a cell is {one.width} keys x {one.height} queries and shows the largest"
        if one.width * one.height > 1
        else ""
    )
    return {
        "title": f"{escape(group.title)}{part}{held}",
        "start": group.stretch.start,
        "stop": group.stretch.stop,
        "width": one.width,
        "height": one.height,
        "bins": one.values.shape[1],
        "panels": panels,
    }


def _legend(kind: str, drawn: set[str]) -> Iterator[tuple[str, str]]:
    """The colours to explain, and what they mean: names of page.css, or "readable"."""
    said = meanings(kind)
    if "edge" in drawn:
        yield "edge", said["edge"]
    if faulty := [said[look] for look in ("extra", "missing") if look in drawn]:
        yield "wrong", f"wrong: {'; or '.join(faulty)}"
    if kind == "mask":
        # what was not handed over looks the same
        shown = {"read": "readable", "unread": "none", "absent": "none"}
        yield from dict.fromkeys(
            (color, said["read" if look == "read" else "unread"]) for look, color in shown.items() if look in drawn
        )
        return
    for look, color in (("absent", "none"), ("unread", "outside")):
        if look in drawn:
            yield color, said[look]


def _codes(one: Marks) -> str:
    steps = _LARGEST_CODE - 2
    logs = np.log10(np.clip(np.nan_to_num(one.values), 10.0**-_DECADES, 1)) / _DECADES + 1
    codes = np.where(one.values > 0, 2 + np.rint(logs * steps), np.where(np.isnan(one.values), 0, 1)).astype("<u2")
    codes |= np.where(one.allowed, _ALLOWED, 0).astype("<u2") | np.where(one.extra | one.missing, _WRONG, 0).astype(
        "<u2"
    )
    return base64.b64encode(codes.tobytes()).decode()
