"""Finds the checks, validates them, selects among them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from inspect import cleandoc, isfunction, signature
from pathlib import Path
from types import ModuleType
from typing import Any

import gemma_doctor.checks as check_package
from gemma_doctor import documentation
from gemma_doctor.check import BUILT_IN, GROUPS, Check, CheckFunction, Need, needs_of, thresholds_of
from gemma_doctor.errors import DoctorError, in_one_line, suggest
from gemma_doctor.members import member_names
from gemma_doctor.plugins import Candidate, in_distributions, in_folders
from gemma_doctor.routes import all_routes

FOLDER = Path(check_package.__path__[0])


def validate(module: ModuleType, group: str, source: str = BUILT_IN) -> Check:
    """Turn a module into a Check.

    Raises:
        TypeError: not exactly one function marked with @check, wrong name, wrong parameters, headings missing.
    """
    file_name = module.__name__.rsplit(".", 1)[-1]
    function = _marked_in(module)
    if function.__name__ != file_name:
        raise TypeError(f"the check must be named {file_name} like its file, not {function.__name__}")
    said = documentation.read(cleandoc(module.__doc__ or "")).sections
    missing = [heading for heading in documentation.HEADINGS if not said.get(heading)]
    if missing:
        raise TypeError(f"its docstring lacks {', '.join(missing)}")
    if not (function.__doc__ or "").strip():
        raise TypeError(f"{file_name}() has no docstring, which is what list shows")
    if function.__gemma_doctor_check__ not in ("", *GROUPS):
        raise TypeError(f"decides_before={function.__gemma_doctor_check__!r} is no group")
    return Check(
        id=file_name.replace("_", "-"),
        group=group,
        function=function,
        needs=_needs_of(function),
        decides_before=function.__gemma_doctor_check__,
        source=source,
        thresholds=thresholds_of(function),
    )


def _marked_in(module: ModuleType) -> Any:
    """The function marked with @check. Those that were imported from other files count there."""
    own = [one for one in vars(module).values() if isfunction(one) and one.__globals__ is vars(module)]
    marked = {id(one): one for one in own if "__gemma_doctor_check__" in vars(one)}
    if len(marked) != 1:
        raise TypeError(f"it has {len(marked)} functions marked with @check; it needs one")
    return marked.popitem()[1]


def _needs_of(function: CheckFunction) -> tuple[Need, ...]:
    """What a check asks for.

    Raises:
        TypeError: nothing, a parameter without a type, or a route that there is not.
    """
    needs = needs_of(function)
    named = {*(need.parameter for need in needs), *thresholds_of(function)}
    untyped = [name for name in signature(function).parameters if name not in named]
    if untyped:
        raise TypeError(f"parameter {untyped[0]!r} has no type, and so no evidence")
    if not needs:
        raise TypeError("it takes no evidence, so that it looks at nothing")
    for need in needs:
        if need.of and need.of not in all_routes():
            raise TypeError(f"there is no route {need.of!r}{suggest(need.of, all_routes())}")
    return needs


@cache
def built_in() -> tuple[Check, ...]:
    """All checks of this distribution, in reading-path order: by group, then by name."""
    found = []
    for group in GROUPS:
        package = importlib.import_module(f"{check_package.__name__}.{group}")
        for name in member_names(package.__path__):
            found.append(validate(importlib.import_module(f"{package.__name__}.{name}"), group))
    return tuple(found)


def available(folders: Sequence[str] = (), plugins: bool = True) -> tuple[Check, ...]:
    """The checks of this distribution and those of others, in reading-path order.

    Args:
        folders: with further checks.
        plugins: those of the entry-point group `gemma_doctor.checks` too.

    Raises:
        DoctorError: one of them cannot be imported, is no check, or has an id that is taken.
    """
    foreign = _foreign(folders, plugins)
    _refuse_clashes(foreign)
    checks = [*built_in(), *map(load, foreign)]
    return tuple(sorted(checks, key=lambda one: GROUPS.index(one.group)))


def all_ids(folders: Sequence[str] = (), plugins: bool = True) -> tuple[str, ...]:
    """The ids alone of what `available` gives, without importing the checks: what a shell completes.

    Raises:
        DoctorError: as plugins.in_folders and plugins.in_distributions do.
    """
    own = [name.replace("_", "-") for group in GROUPS for name in member_names([str(FOLDER / group)])]
    return (*own, *(one.id for one in _foreign(folders, plugins)))


def _foreign(folders: Sequence[str], plugins: bool) -> list[Candidate]:
    return [*in_folders(folders), *(in_distributions() if plugins else ())]


def _refuse_clashes(foreign: Sequence[Candidate]) -> None:
    taken = {one.id: BUILT_IN for one in built_in()} | dict.fromkeys(GROUPS, "a group")
    for one in foreign:
        if one.id in taken:
            raise DoctorError(
                f"{one.place}: the id {one.id!r} is taken ({taken[one.id]})", f"rename its file; {one.hint}"
            )
        taken[one.id] = one.source


def load(one: Candidate) -> Check:
    """Import and validate the check of others.

    Raises:
        DoctorError: it cannot be imported, or is no check.
    """
    module = one.load()
    try:
        return validate(module, one.group, one.source)
    except Exception as error:  # annotations are evaluated: anything can come of it
        raise DoctorError(f"{one.place}: {in_one_line(error)}", one.hint) from error


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
