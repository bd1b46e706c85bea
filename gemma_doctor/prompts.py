"""Text of any length without shipping anybody's prose: the docstrings of Python's own standard library."""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

SOURCE = "docstrings of Python's standard library"


def docstrings() -> Iterator[str]:
    """Docstrings of at least 200 characters, module by module in alphabetical order.

    Only what needs no import is read: the source files of single-file modules.
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(folder.glob("*.py"), key=lambda one: one.name):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node) or ""
                if len(text) >= 200:
                    yield text


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
