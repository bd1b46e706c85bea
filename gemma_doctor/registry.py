"""Finds the checks, validates them, selects among them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache
from types import ModuleType

import gemma_doctor.checks as check_package
from gemma_doctor.check import GROUPS, Check, needs_of, thresholds_of
from gemma_doctor.errors import DoctorError, suggest

HEADINGS = ("What it proves", "Why it matters", "How to fix", "Known limits", "References")


def validate(module: ModuleType, group: str, source: str = "gemma-doctor") -> Check:
    """Turn a module into a Check.

    Raises:
        TypeError: not exactly one function marked with @check, wrong name, wrong parameters, headings missing.
    """
    file_name = module.__name__.rsplit(".", 1)[-1]
    marked = [value for value in vars(module).values() if hasattr(value, "__gemma_doctor_check__")]
    if len(marked) != 1:
        raise TypeError(f"{module.__name__} has {len(marked)} functions marked with @check; it needs one")
    function = marked[0]
    if function.__name__ != file_name:
        raise TypeError(f"{module.__name__}: the check must be named {file_name}, not {function.__name__}")
    missing = [heading for heading in HEADINGS if heading not in (module.__doc__ or "")]
    if missing:
        raise TypeError(f"{module.__name__}: its docstring lacks {', '.join(missing)}")
    return Check(
        id=file_name.replace("_", "-"),
        group=group,
        function=function,
        needs=needs_of(function),
        decides_before=function.__gemma_doctor_check__,
        source=source,
        thresholds=thresholds_of(function),
    )


@cache
def built_in() -> tuple[Check, ...]:
    """All checks of this distribution, in reading-path order: by group, then by name."""
    found = []
    for group in GROUPS:
        package = importlib.import_module(f"{check_package.__name__}.{group}")
        for info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            found.append(validate(module, group))
    return tuple(found)


def available(folders: Sequence[str] = (), plugins: bool = True) -> tuple[Check, ...]:
    """The checks of this distribution and those of others, in reading-path order.

    Args:
        folders: with further checks.
        plugins: those of the entry-point group `gemma_doctor.checks` too.

    Raises:
        DoctorError: one of them cannot be imported, or is no check.
    """
    return built_in()


def expand(words: Sequence[str], checks: Sequence[Check], flag: str) -> set[str]:
    """Ids for a list of ids and group names.

    Raises:
        DoctorError: a word is neither.
    """
    ids = {one.id for one in checks}
    chosen: set[str] = set()
    for word in words:
        if word in ids:
            chosen.add(word)
        elif word in GROUPS:
            chosen.update(one.id for one in checks if one.group == word)
        else:
            raise DoctorError(
                f"{flag}: there is no check or group {word!r}{suggest(word, [*ids, *GROUPS])}",
                "gemma-doctor list shows them all",
            )
    return chosen


def select(checks: Sequence[Check], wanted: Sequence[str] = (), ignored: Sequence[str] = ()) -> tuple[Check, ...]:
    """The checks to run: `wanted` (all if empty) without `ignored`.

    Raises:
        DoctorError: an unknown name, or nothing is left.
    """
    chosen = expand(wanted, checks, "--select") if wanted else {one.id for one in checks}
    chosen -= expand(ignored, checks, "--ignore")
    if not chosen:
        raise DoctorError("no check is left to run", "loosen --select or --ignore")
    return tuple(one for one in checks if one.id in chosen)


def by_id(check_id: str, checks: Sequence[Check]) -> Check:
    """One check.

    Raises:
        DoctorError: unknown id, with a suggestion.
    """
    for one in checks:
        if one.id == check_id:
            return one
    raise DoctorError(
        f"there is no check {check_id!r}{suggest(check_id, [one.id for one in checks])}",
        "gemma-doctor list shows them all",
    )
