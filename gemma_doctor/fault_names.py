"""Which faults there are, read from their files: importing them takes torch, and a wrong name is told at once."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gemma_doctor.errors import DoctorError, suggest
from gemma_doctor.members import member_names

FOLDER = Path(__file__).parent / "faults"


def fault_names() -> list[str]:
    """Ids of all faults, alphabetically."""
    return [name.replace("_", "-") for name in member_names([str(FOLDER)])]


def require_known(names: Sequence[str], known: Iterable[str]) -> None:
    """Refuse a name that no fault has.

    Raises:
        DoctorError: there is no fault of that name.
    """
    for name in names:
        if name not in known:
            hint = "gemma-doctor list shows them all"
            raise DoctorError(f"--faults: there is no fault {name!r}{suggest(name, known)}", hint)


def described() -> Iterator[tuple[str, str, str]]:
    """Of each fault its id, the check that must be the cause, and what is done."""
    for name in member_names([str(FOLDER)]):
        for node in ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                yield name.replace("_", "-"), _caught_by(node), (ast.get_docstring(node) or "").split("\n")[0]


def _caught_by(function: ast.FunctionDef) -> str:
    """The first argument of @fault."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and decorator.args and isinstance(decorator.args[0], ast.Constant):
            return str(decorator.args[0].value)
    return ""
