"""Packages of which each file adds one thing: a route, a fault."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any


def members(package: ModuleType) -> Iterator[Any]:
    """What each file of a package is named after, alphabetically. Names with an underscore in front are what the files
    share.
    """
    for info in pkgutil.iter_modules(package.__path__):
        if not info.name.startswith("_"):
            yield getattr(importlib.import_module(f"{package.__name__}.{info.name}"), info.name)
