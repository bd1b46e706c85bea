"""Packages of which each file adds one thing: a route, a fault."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from gemma_doctor.errors import DoctorError


def members(package: ModuleType) -> Iterator[Any]:
    """What each file of a package is named after, alphabetically.

    Raises:
        DoctorError: a file has no such thing.
    """
    for name in member_names(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{name}")
        if not hasattr(module, name):
            raise DoctorError(f"{module.__name__} has nothing named {name}", "name it like its file")
        yield getattr(module, name)


def member_names(folders: Iterable[str]) -> Iterator[str]:
    """The names alone, alphabetically, imported by nobody. An underscore in front: what the files share."""
    yield from (info.name for info in pkgutil.iter_modules(folders) if not info.name.startswith("_"))
