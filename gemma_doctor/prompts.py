"""Text of any length without shipping anybody's prose: the docstrings of Python's own standard library."""

from __future__ import annotations

import ast
import functools
import hashlib
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path

SOURCE = "docstrings of Python's standard library"
NAMED = 20_000  # characters that tell this text from another Python's
SHORTEST = 200  # characters: shorter ones repeat each other's phrases
# Folders with nobody's prose in them, or with somebody else's.
LEFT_OUT = frozenset(("test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"))


def sources() -> Iterator[Path]:
    """The library's files: single-file modules first, then packages with all that is in them, each alphabetically."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    yield from sorted(folder.glob("*.py"), key=lambda one: one.name)
    packages = (one.relative_to(folder) for one in folder.glob("*/**/*.py"))
    for path in sorted((one for one in packages if LEFT_OUT.isdisjoint(one.parts)), key=lambda one: one.parts):
        yield folder / path


def docstrings() -> Iterator[str]:
    """Every docstring of at least SHORTEST characters once, in a fixed order. Only sources are read: nothing is
    imported.
    """
    seen: set[str] = set()
    for path in sources():
        for text in _of_file(path):
            if text not in seen:
                seen.add(text)
                yield text


@functools.cache
def _of_file(path: Path) -> tuple[str, ...]:
    """Its docstrings of at least SHORTEST characters. Several makers of evidence ask for the same ones."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):  # a UnicodeDecodeError is a ValueError
        return ()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = (ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented))
    return tuple(text for text in texts if len(text) >= SHORTEST)


def english(characters: int) -> str:
    """At least `characters` characters of text (less only if the library holds less)."""
    parts: list[str] = []
    size = 0
    for text in docstrings():
        parts.append(text)
        size += len(text) + 2
        if size >= characters:
            break
    return "\n\n".join(parts)


def source_of(text: str) -> str:
    """Where texts of `english` come from, and which they are: another Python has other docstrings.

    "docstrings of Python's standard library (3.11.7, sha256 0f1e2d3c4b5a)". `text` is the beginning of them.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{SOURCE} ({platform.python_version()}, sha256 {digest})"


def source() -> str:
    """The same name for all texts of this Python, however long they are."""
    return source_of(english(NAMED)[:NAMED])
