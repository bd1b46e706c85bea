"""The JSON Schemas that are shipped, by name: each is a file NAME.schema.json in this package."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

SUFFIX = ".schema.json"


def names() -> tuple[str, ...]:
    """Of all of them, in alphabetical order."""
    found = (one.name for one in files("gemma_doctor.report").iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX)))


def text(name: str) -> str:
    """One of them, as it lies there."""
    return files("gemma_doctor.report").joinpath(f"{name}{SUFFIX}").read_text(encoding="utf-8")


def load(name: str) -> dict[str, Any]:
    """One of them."""
    loaded: dict[str, Any] = json.loads(text(name))
    return loaded
