"""Layers without keys of their own read those of an earlier layer than the last one of their kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from gemma_doctor import compat
from gemma_doctor.capture.model_facts import attention_modules
from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient


def _why_not(patient: Patient) -> str:
    if not _readers(patient.reduced):
        return "no layer reads the keys and values of another"
    return "" if _sources(patient.reduced) else "each shared layer has but one layer of its kind to read from"


@fault("past-key-length", why_not=_why_not)
def shared_layer_reads_another(patient: Patient) -> Iterator[None]:
    """Let layers without keys of their own read those of the last layer but one that has some, of their kind."""
    with ExitStack() as changed:
        for model in patient.models:
            kind, (instead, now) = _sources(model)
            changed.enter_context(compat.keys_shared_from(instead, now, _readers(model)[kind]))
        yield


def _readers(model: Any) -> dict[str, list[Any]]:
    """Attention modules without keys of their own, by kind."""
    return _by_kind(model, own=False)


def _sources(model: Any) -> Any:
    """A kind of layer that reads others' keys, and the last two modules of that kind that have some of their own; None
    if every such kind has but one.
    """
    own = _by_kind(model, own=True)
    return next(((kind, own[kind][-2:]) for kind in _readers(model) if len(own.get(kind, ())) > 1), None)


def _by_kind(model: Any, own: bool) -> dict[str, list[Any]]:
    kinds = compat.layer_kinds(compat.text_config(model))
    found: dict[str, list[Any]] = {}
    for index, module in attention_modules(model).items():
        if compat.has_own_keys(module) is own:
            found.setdefault(kinds[index], []).append(module)
    return found
