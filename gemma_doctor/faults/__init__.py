"""Known faults that can be put into a healthy patient and taken out again.

One file per fault: a generator that changes the patient, yields, and undoes the change whatever happens.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from gemma_doctor.capture.model_facts import attention_modules
from gemma_doctor.loading import Patient

Inject = Callable[[Patient], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        id: slug; the file name with dashes.
        caught_by: id of the check that must be its cause.
        inject: context manager: sick inside the block, as before after it.
        why_not: reason why a patient cannot have it, "" if it can.
    """

    id: str
    caught_by: str
    inject: Inject
    why_not: Callable[[Patient], str]

    @property
    def title(self) -> str:
        return (inspect.getdoc(self.inject) or "").splitlines()[0]


def fault(
    caught_by: str, why_not: Callable[[Patient], str] = lambda patient: ""
) -> Callable[[Callable[[Patient], Iterator[None]]], Fault]:
    """Make a Fault of a generator function named like its file."""

    def make(generator: Callable[[Patient], Iterator[None]]) -> Fault:
        return Fault(generator.__name__.replace("_", "-"), caught_by, contextmanager(generator), why_not)

    return make


def attention_of(patient: Patient) -> list[Any]:
    """All attention modules of a patient's text decoders."""
    return [module for model in patient.models for module in attention_modules(model).values()]


def last_attention_of(patient: Patient) -> list[Any]:
    """The attention module of each model's last layer."""
    return [list(attention_modules(model).values())[-1] for model in patient.models]


def all_faults() -> dict[str, Fault]:
    """Every fault by id, alphabetically."""
    faults = {}
    for info in pkgutil.iter_modules(__path__):
        found = getattr(importlib.import_module(f"{__name__}.{info.name}"), info.name)
        faults[found.id] = found
    return faults
