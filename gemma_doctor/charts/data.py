"""The numbers of a chart: json (all of it), csv (one line per cell), npz (arrays).

json  one document, ASCII. Numbers to 6 significant digits, null where the kernel was not handed the key. `allowed`
      holds, for every query, the first and last position of each stretch that it may read.
csv   RFC 4180, UTF-8: layer, kind, head, query, key, token, weight, allowed. Text is written as Python writes it,
      quotes included, so that no spreadsheet takes it for a formula; weight is empty where the key was not handed over.
npz   `header` (the json document without its arrays, as text), `queries`, `keys`, and per layer `weights_layer_5`
      (heads, queries, keys; NaN where not handed over) and `allowed_layer_5` (queries, keys); "stack" instead of
      "layer_5" for the whole stack. Loads with allow_pickle=False.
"""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np

from gemma_doctor.charts.chart import Chart, Panel
from gemma_doctor.evidence import Bools, Ints

_DIGITS = 6


def render(chart: Chart, form: str) -> bytes:
    """The chart as "json", "csv" or "npz"."""
    return {"json": _json, "csv": _csv, "npz": _npz}[form](chart)


def _json(chart: Chart) -> bytes:
    document = _header(chart)
    document["queries"], document["keys"] = chart.queries.tolist(), chart.keys.tolist()
    for told, panel in zip(document["panels"], chart.panels, strict=True):
        told["values"] = [[[_number(one) for one in row] for row in head.tolist()] for head in panel.values]
        told["allowed"] = [_stretches(row, chart.keys) for row in panel.allowed]
    return (json.dumps(document, allow_nan=False) + "\n").encode("ascii")


def _header(chart: Chart) -> dict[str, Any]:
    """Everything but the arrays."""
    return {
        "kind": chart.kind,
        "subject": chart.subject,
        "headline": chart.headline,
        "facts": dict(chart.facts),
        "notes": list(chart.notes),
        "scale": chart.scale,
        "tokens": list(chart.tokens),
        "panels": [_panel(panel) for panel in chart.panels],
    }


def _panel(panel: Panel) -> dict[str, Any]:
    shares = None if panel.shares is None else {name: _number(one) for name, one in asdict(panel.shares).items()}
    return {
        "layer": panel.layer,
        "kind": panel.kind,
        "window": panel.window,
        "heads": list(panel.heads),
        "shares": shares,
        "misplaced": [{"slot_of": due, "holds": there} for due, there in panel.misplaced],
        "reach": None if panel.reach is None else panel.reach.tolist(),
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.{_DIGITS}g}")


def _stretches(allowed: Bools, keys: Ints) -> list[list[int]]:
    changes = np.diff(np.concatenate(([0], allowed.astype(np.int8), [0])))
    starts, ends = (changes == 1).nonzero()[0], (changes == -1).nonzero()[0] - 1
    return [[int(keys[start]), int(keys[end])] for start, end in zip(starts, ends, strict=True)]


def _csv(chart: Chart) -> bytes:
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(("layer", "kind", "head", "query", "key", "token", "weight", "allowed"))
    tokens = [_text(token) for token in chart.tokens]
    keys = chart.keys.tolist()
    for panel in chart.panels:
        layer, kind = "" if panel.layer is None else panel.layer, _text(panel.kind)
        for head, rows in zip(panel.heads, panel.values, strict=True):
            for query, row, allowed in zip(chart.queries.tolist(), rows.tolist(), panel.allowed.tolist(), strict=True):
                for key, token, weight, may in zip(keys, tokens, row, allowed, strict=True):
                    writer.writerow((layer, kind, head, query, key, token, _number(weight), int(may)))
    return file.getvalue().encode()


def _text(text: str) -> str:
    return text if text.isidentifier() or not text else ascii(text)


def _npz(chart: Chart) -> bytes:
    arrays: dict[str, Any] = {
        "header": np.array(json.dumps(_header(chart), allow_nan=False)),
        "queries": chart.queries,
        "keys": chart.keys,
    }
    for panel in chart.panels:
        name = "stack" if panel.layer is None else f"layer_{panel.layer}"
        arrays |= {f"weights_{name}": panel.values, f"allowed_{name}": panel.allowed}
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()
