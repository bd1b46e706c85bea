"""Facts about layers as a table for people, or as the document itself (facts.schema.json)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemma_doctor.evidence import theta_in_words
from gemma_doctor.finding import ranges
from gemma_doctor.report.escape import escape
from gemma_doctor.report.json import dumped
from gemma_doctor.report.plan import columns

HEAD = ("layer kind", "layers", "window", "theta", "rotation", "heads", "kv heads", "head dim", "scale", "keys of")
SOURCES = {
    "published": "as the published file says",
    "loaded": "as built by the installed transformers",
}
UNKNOWN = "?"
WORDS = {
    "norm_eps": "eps",
    "attention_softcap": "attention soft-cap",
    "logits_softcap": "logits soft-cap",
    "vocab_size": "vocabulary",
    "bos_token_id": "bos",
    "eos_token_id": "eos",
    "pad_token_id": "pad",
}


def document(facts: Mapping[str, Any]) -> str:
    """JSON, pure ASCII, ending in a newline."""
    return dumped(facts)


def text(facts: Mapping[str, Any]) -> str:
    """One row for all layers that are alike."""
    model = facts["model"]
    named = [str(model.get("family", "")), f"{len(facts['layers'])} layers"]
    named += [f"{model['max_positions']:,} positions"] if "max_positions" in model else []
    said = [
        f"{word} {_ids(model[key]) if key.endswith('_id') else _in_words(model[key])}"
        for key, word in WORDS.items()
        if key in model
    ]
    alike: dict[tuple[str, ...], list[int]] = {}
    for layer in facts["layers"]:
        alike.setdefault(_cells(layer), []).append(layer["index"])
    rows = [(cells[0], ", ".join(ranges(indices)), *cells[1:]) for cells, indices in alike.items()]
    lines = [
        f"{escape(str(facts['subject']))}: {escape(', '.join(named))}; {SOURCES[facts['source']]}",
        escape("; ".join(said)),
        "",
        *columns(HEAD, [tuple(map(escape, row)) for row in rows]),
    ]
    if any(UNKNOWN in row for row in rows):
        lines += ["", f"{UNKNOWN}: the file leaves it to the model's class; --source loaded asks transformers"]
    return "\n".join(lines) + "\n"


def _cells(layer: Mapping[str, Any]) -> tuple[str, ...]:
    """Of one layer, but for its index."""
    shared = layer["shares_kv_with"]
    return (
        layer["kind"],
        _in_words(layer["window"], "all"),
        _theta(layer),
        _rotation(layer),
        *(f"{layer[key]:,}" for key in ("query_heads", "kv_heads", "head_dim")),
        f"{layer['attention_scale']:.4g}" if "attention_scale" in layer else UNKNOWN,
        "its own" if shared is None else f"layer {shared}",
    )


def _theta(layer: Mapping[str, Any]) -> str:
    if "rope_theta" not in layer:
        return UNKNOWN
    return "none" if layer["rope_theta"] is None else theta_in_words(layer["rope_theta"])


def _rotation(layer: Mapping[str, Any]) -> str:
    """ "linear (factor 8.0)"; "" where the layer does not turn."""
    parameters = ", ".join(f"{key} {_in_words(value)}" for key, value in layer.get("rope_parameters", {}).items())
    return f"{layer.get('rope_type', '')} ({parameters})" if parameters else str(layer.get("rope_type", ""))


def _ids(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _in_words(value: object, none: str = "none") -> str:
    if value is None:
        return none
    if isinstance(value, list):  # factors of longrope, dozens of them
        shown = ", ".join(map(str, value[:4]))
        return f"[{shown}{' ...' if len(value) > 4 else ''}]"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
