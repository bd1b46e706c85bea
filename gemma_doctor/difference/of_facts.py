"""Two documents of facts about layers, key by key: what differs, and what only one of them says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gemma_doctor.difference.changes import Change, Difference
from gemma_doctor.errors import DoctorError, suggest
from gemma_doctor.finding import ranges
from gemma_doctor.oracle import same
from gemma_doctor.report.schemas import load

HINT = "gemma-doctor schema facts prints what it may hold"
PARAMETERS = "rope_parameters"
LONGEST = 80  # characters of a value

# By the place they are about ("model", or a layer's index), then by key.
Flat = dict[tuple[int | None, str], Any]


def difference(before: Mapping[str, Any], after: Mapping[str, Any], before_name: str, after_name: str) -> Difference:
    """What differs of what both documents say.

    Raises:
        DoctorError: a document holds something else than it may, or the two have nothing in common.
    """
    ours, theirs = _flat(before, before_name), _flat(after, after_name)
    both = [place for place in ours if place in theirs]
    if all(index is None for index, _ in both):
        raise DoctorError(f"{before_name} and {after_name} say nothing about the same layer", HINT)
    wrong = [place for place in both if not same(ours[place], theirs[place])]
    names = [str(one.get("subject", "")) for one in (before, after)]
    return Difference(
        of="facts",
        before=before_name,
        after=after_name,
        before_is=_in_short(before),
        after_is=_in_short(after),
        same_subject="" in names or names[0] == names[1],
        compared=len(both),
        differs=(*_layers(before, after), *_changes(wrong, ours, theirs)),
        not_compared=(*_only(ours, theirs, before_name), *_only(theirs, ours, after_name)),
    )


def _in_short(document: Mapping[str, Any]) -> str:
    """ "gemma-3-270m, published (gemma-doctor 0.1.0)"."""
    said = ", ".join(str(document[key]) for key in ("subject", "source") if key in document)
    return said + (f" ({document['made_by']})" if "made_by" in document else "")


# --- reading ---------------------------------------------------------------------------------------------------------


def _flat(document: Mapping[str, Any], name: str) -> Flat:
    """Every value that a document gives, one by one; whoever misspells a key must hear of it."""
    schema = load("facts")
    layer_keys, model_keys = schema["$defs"]["layer"]["properties"], schema["properties"]["model"]["properties"]
    _require_known(document, schema["properties"], name)
    model, layers = document.get("model", {}), document.get("layers", [])
    _require(isinstance(model, Mapping) and isinstance(layers, list) and bool(layers), f"{name}: has no layers")
    _require_known(model, model_keys, f"{name}: model")
    flat: Flat = {(None, key): _as_list(value) if key.endswith("_id") else value for key, value in model.items()}
    seen: set[int] = set()
    for layer in layers:
        _require(isinstance(layer, Mapping), f"{name}: a layer is {str(layer)[:LONGEST]!r}, no mapping")
        index = layer.get("index")
        whole = isinstance(index, int) and not isinstance(index, bool) and index >= 0
        _require(whole, f"{name}: a layer without a usable index")
        _require(index not in seen, f"{name}: layer {index} stands there twice")
        seen.add(index)
        _require_known(layer, layer_keys, f"{name}: layer {index}")
        flat |= {(index, key): value for key, value in _values(layer, f"{name}: layer {index}")}
    return flat


def _values(layer: Mapping[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    """Rotary parameters one by one, since an engine may know some of them only."""
    for key, value in layer.items():
        if key == PARAMETERS:
            _require(isinstance(value, Mapping), f"{place}: {PARAMETERS} is no mapping")
            yield from ((f"{PARAMETERS}.{name}", one) for name, one in value.items())
        elif key != "index":
            yield key, value


def _as_list(value: Any) -> Any:
    return sorted(value, key=str) if isinstance(value, list) else [value]


def _require_known(mapping: Mapping[str, Any], known: Mapping[str, Any], place: str) -> None:
    for key in mapping:
        _require(key in known, f"{place}: unknown key {key!r}{suggest(key, known)}")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise DoctorError(message, HINT)


# --- saying ----------------------------------------------------------------------------------------------------------


def _layers(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    """Keys may be left out, layers may not: an export that lost some has nothing to say of them."""
    one, other = (sorted(layer["index"] for layer in document["layers"]) for document in (before, after))
    if one != other:
        yield Change("layers", "which there are", ", ".join(ranges(one)), ", ".join(ranges(other)))


def _changes(wrong: list[tuple[int | None, str]], ours: Flat, theirs: Flat) -> Iterator[Change]:
    """Layers that differ in the same way are told together."""
    alike: dict[tuple[str, str, str], list[int | None]] = {}
    for index, key in wrong:
        alike.setdefault((key, _shown(ours[index, key]), _shown(theirs[index, key])), []).append(index)
    for (key, one, other), indices in alike.items():
        yield Change(_place(indices), key, one, other)


def _only(one: Flat, other: Flat, name: str) -> Iterator[str]:
    """ "layers 0-17: kind, head_dim: only before.json names them"."""
    by_key: dict[str, list[int | None]] = {}
    for index, key in one:
        if (index, key) not in other:
            by_key.setdefault(key, []).append(index)
    by_place: dict[str, list[str]] = {}
    for key, indices in by_key.items():
        by_place.setdefault(_place(indices), []).append(key)
    for place, keys in by_place.items():
        yield f"{place}: {', '.join(keys)}: only {name} names {'it' if len(keys) == 1 else 'them'}"


def _place(indices: list[int | None]) -> str:
    layers = sorted(index for index in indices if index is not None)
    return f"layer{'s' * (len(layers) > 1)} {', '.join(ranges(layers))}" if layers else "the model"


def _shown(value: Any) -> str:
    said = json.dumps(value)
    return said if len(said) <= LONGEST else f"{said[:LONGEST]} ..."
