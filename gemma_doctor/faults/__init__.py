"""Known faults that can be put into a healthy patient and taken out again.

One file per fault: a generator that changes the patient, yields, and undoes the change whatever happens.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from gemma_doctor import compat
from gemma_doctor.capture.model_facts import attention_modules
from gemma_doctor.errors import DoctorError, suggest
from gemma_doctor.evidence import SLIDING
from gemma_doctor.finding import Severity
from gemma_doctor.loading import Patient
from gemma_doctor.members import members
from gemma_doctor.registry import built_in

Inject = Callable[[Patient], AbstractContextManager[None]]

# Checks that do not exist yet, and their groups. Faults that wait for one are written all the same.
WAITED_FOR = {
    "activation": "numerics",
    "embedding-scale": "numerics",
    "reference-parity": "numerics",
    "softcap": "numerics",
}


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        id: slug; the file name with dashes.
        caught_by: id of the check that must be its cause; one of WAITED_FOR if there is none yet.
        inject: context manager: sick inside the block, as before after it.
        why_not: reason why a patient cannot have it, "" if it can.
        severity: of the finding: what only costs memory or time is a warning.
        routes: ids of routes that must be in use for it to show, beyond those that everyone takes.
    """

    id: str
    caught_by: str
    inject: Inject
    why_not: Callable[[Patient], str]
    severity: Severity = Severity.ERROR
    routes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return (inspect.getdoc(self.inject) or "").splitlines()[0]

    @property
    def group(self) -> str:
        """Of the reading path, where its check stands or will stand."""
        groups = WAITED_FOR | {one.id: one.group for one in built_in()}
        if self.caught_by not in groups:
            raise DoctorError(
                f"fault {self.id}: there is no check {self.caught_by!r}{suggest(self.caught_by, groups)}",
                "name one, or the one that it waits for in WAITED_FOR",
            )
        return groups[self.caught_by]


def fault(
    caught_by: str,
    why_not: Callable[[Patient], str] = lambda patient: "",
    severity: Severity = Severity.ERROR,
    routes: tuple[str, ...] = (),
) -> Callable[[Callable[[Patient], Iterator[None]]], Fault]:
    """Make a Fault of a generator function named like its file."""

    def make(generator: Callable[[Patient], Iterator[None]]) -> Fault:
        inject = _with_fresh_caches(contextmanager(generator))
        return Fault(generator.__name__.replace("_", "-"), caught_by, inject, why_not, severity, routes)

    return make


def _with_fresh_caches(inject: Inject) -> Inject:
    """generate() keeps some caches on the model (4.57): one from before must not be changed, nor a changed one stay."""

    def forget(patient: Patient) -> None:
        for model in patient.models:
            compat.forget_kept_cache(model)

    @contextmanager
    @functools.wraps(inject)
    def fresh(patient: Patient) -> Iterator[None]:
        forget(patient)
        try:
            with inject(patient):
                yield
        finally:
            forget(patient)

    return fresh


def attention_of(patient: Patient) -> list[Any]:
    """All attention modules of a patient's text decoders."""
    return [module for model in patient.models for module in attention_modules(model).values()]


def last_attention_of(patient: Patient) -> list[Any]:
    """The attention module of each model's last layer."""
    return [list(attention_modules(model).values())[-1] for model in patient.models]


def no_window(patient: Patient) -> str:
    """Reason why a patient cannot have a fault of its window."""
    return "" if patient.window else "the model has no window"


def one_attention_of(model: Any) -> Any:
    """One attention module with keys of its own: the last that slides, or just the last."""
    kinds = compat.layer_kinds(compat.text_config(model))
    own = {index: one for index, one in attention_modules(model).items() if compat.has_own_keys(one)}
    return own[max(own, key=lambda index: (kinds[index] == SLIDING, index))]


def all_faults() -> dict[str, Fault]:
    """Every fault by id, alphabetically."""
    return {one.id: one for one in members(sys.modules[__name__])}
