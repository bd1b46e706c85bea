"""Follows a configuration's values from the published file to the running model, and into a file and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gemma_doctor import compat, skeleton
from gemma_doctor.errors import in_one_line
from gemma_doctor.evidence import Arrival, Claim, ConfigDrift, TiedHead
from gemma_doctor.loading import Patient
from gemma_doctor.published import EPS_KEYS, PATTERN_KEYS, ROPE_KEYS, WINDOW_KEYS, WINDOW_SWITCH, text_part

TIE = "tie_word_embeddings"
ROWS = 16384
# Compared by checks of their own, in whatever spelling they were published.
COMPARED_ELSEWHERE = (*WINDOW_KEYS, WINDOW_SWITCH, *PATTERN_KEYS, *ROPE_KEYS, *EPS_KEYS, "max_position_embeddings")


def config_drift(patient: Patient) -> ConfigDrift:
    """What became of the published values of a patient's text part."""
    whole = patient.subject.published
    text, prefix = text_part(whole)
    with compat.quiet():
        built = skeleton.text_config(whole)
        values, running = compat.plain(built), compat.plain(compat.text_config(patient.model))
        known, kinds = compat.known_keys(built), compat.layer_kinds(built)
        kept = _uncut(patient, whole, values)
        saved, unsaved = _saved(patient.model.config, prefix)
    due = compat.corrected(built, text)
    loaded = {key: running[key] if key in kept and key in running else values[key] for key in values}
    own = {key for key in text if not compat.is_bookkeeping(key)}
    return ConfigDrift(
        arrived=tuple(
            Arrival(prefix + key, due[key], loaded[key])
            for key in sorted(own & known & loaded.keys() - {*COMPARED_ELSEWHERE})
        ),
        unread=tuple(Claim(prefix + key, text[key]) for key in sorted(own & values.keys() - known - {*ROPE_KEYS})),
        absent={key: loaded.get(key) for key in sorted((known | _rope_spelling(text)) - text.keys())},
        misplaced=tuple(_misplaced(whole, prefix, known, loaded)),
        saved=saved,
        unsaved=unsaved,
        kinds=kinds,
        kept=_kept_layers(patient, built),
        head=_head(patient, text, whole),
    )


def _rope_spelling(text: Mapping[str, Any]) -> set[str]:
    """Keys of the older spelling of rotary parameters, which newer classes read and do not name."""
    return set() if "rope_parameters" in text else {"rope_theta", "rope_scaling"}


def _uncut(patient: Patient, whole: Mapping[str, Any], values: Mapping[str, Any]) -> set[str]:
    """Keys whose values the running model should have as the file has them: all, but for what a skeleton cuts."""
    if patient.subject.weights == "real":
        return {*values}
    text, full = skeleton.published_text(whole)
    cut = compat.plain(compat.new_text_config(full.model_type, skeleton.cut_mapping(text, full)))
    return {key for key in values if key in cut and cut[key] == values[key]}


def _kept_layers(patient: Patient, built: Any) -> tuple[int, ...]:
    if patient.subject.weights == "real":
        return tuple(range(built.num_hidden_layers))
    return skeleton.kept_of(built)


def _misplaced(
    whole: Mapping[str, Any], prefix: str, known: frozenset[str], loaded: Mapping[str, Any]
) -> list[Arrival]:
    """Values at the top of a file with a text part of its own, where nothing but that part's class would read them."""
    if not prefix:
        return []
    read_there = compat.known_keys(compat.whole_config(whole))
    keys = (key for key in whole if key in known and key not in read_there and not compat.is_bookkeeping(key))
    return [Arrival(key, whole[key], loaded.get(key)) for key in sorted(keys) if "token" not in key]


def _saved(config: Any, prefix: str) -> tuple[tuple[Arrival, ...], str]:
    """Every value before and after, and why there are none."""
    before = compat.plain(config.get_text_config())
    try:
        after = compat.plain(compat.saved_and_loaded(config).get_text_config())
    except Exception as error:  # whatever the library raises: it is what a user would see
        return (), f"{type(error).__name__}: {in_one_line(error)}"
    keys = sorted(key for key in before.keys() | after.keys() if not compat.is_bookkeeping(key))
    return tuple(Arrival(prefix + key, before.get(key), after.get(key)) for key in keys), ""


def _head(patient: Patient, text: Mapping[str, Any], whole: Mapping[str, Any]) -> TiedHead | None:
    """Which of the two places of a nested file decides differs by family and release: where they differ, none does."""
    model = patient.model
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if patient.subject.weights != "real" or head is None or not _comparable(head.weight, embedding.weight):
        return None
    written = {part[TIE] for part in (text, whole) if isinstance(part.get(TIE), bool)}
    loaded = {getattr(config, TIE, None) for config in (model.config, compat.text_config(model))}
    origin, asked = ("published config.json", written) if written else ("loaded config", loaded)
    if len(asked) != 1 or asked == {None}:
        return None
    shared = head.weight is embedding.weight or head.weight.data_ptr() == embedding.weight.data_ptr()
    deviation = _deviation(head.weight, embedding.weight) if asked == {True} and not shared else None
    return TiedHead(asked == {True}, origin, shared, deviation)


def _comparable(one: Any, other: Any) -> bool:
    """Both are tables of one shape, and in memory: quantised modules may have none, offloaded ones are away."""
    there = all(isinstance(weight, torch.Tensor) and not weight.is_meta for weight in (one, other))
    return there and one.shape == other.shape


def _deviation(one: Any, other: Any) -> float:
    """Largest difference of two tables of weights, a few rows at a time."""
    pairs = zip(one.split(ROWS), other.split(ROWS), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)
