"""Reads a run file: YAML, or the table [tool.gemma-doctor] of a pyproject.toml."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gemma_doctor.errors import DoctorError
from gemma_doctor.json_file import TooLong, limited_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_NAME = "gemma-doctor.yaml"
TABLE = "gemma-doctor"
SUFFIXES = (".yaml", ".yml")


class _Loader(yaml.SafeLoader):
    """The safe loader, with numbers as JSON has them, no key said twice, and no aliases: thirty lines of them could
    stand for a billion values.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(None, None, "aliases are not taken; write the value out", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(None, None, f"the key {key.value!r} stands twice", key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


# YAML 1.1 takes 1e-06 for a text (it wants 1.0e-06); configurations are full of such numbers.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _text(path: Path) -> str:
    try:
        return limited_text(path)
    except TooLong as error:
        raise DoctorError(f"{path}: {error}", "name a run file") from None
    except UnicodeDecodeError:
        raise DoctorError(f"{path}: not a UTF-8 text", "save it as UTF-8") from None
    except OSError as error:
        raise DoctorError(f"{path}: cannot be read ({error.strerror})", "name an existing run file") from None


def parse_yaml(text: str, where: str, hint: str) -> Any:
    """Plain values of a YAML text.

    Args:
        where: the file's name, for the error.
        hint: what to do about that.

    Raises:
        DoctorError: it is no YAML, or asks for objects.
    """
    try:
        # A subclass of SafeLoader: plain values only.
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        problem = getattr(error, "problem", None) or str(error).split("\n", 1)[0]
        raise DoctorError(f"{where}:{line} not valid YAML ({problem})", hint) from None


def _table(path: Path) -> Any:
    try:
        content = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise DoctorError(f"{path}: not valid TOML ({error})", "correct the file") from None
    tool = content.get("tool", {})
    return tool.get(TABLE) if isinstance(tool, Mapping) else None


def read(path: Path) -> dict[str, Any]:
    """The keys of a run file, as written.

    Raises:
        DoctorError: no such file, not YAML or TOML, no mapping of texts to values.
    """
    is_toml = path.suffix == ".toml"
    content = _table(path) if is_toml else parse_yaml(_text(path), str(path), "correct the run file")
    if content is None:
        if is_toml:
            raise DoctorError(f"{path}: has no table [tool.{TABLE}]", "add one, or name another run file")
        content = {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise DoctorError(f"{path}: no mapping of keys to values", "write lines like 'subject: gemma-3-270m'")
    return content


def find(folder: Path) -> Path | None:
    """The run file of a folder: gemma-doctor.yaml, else a pyproject.toml with a table [tool.gemma-doctor]."""
    path = folder / DEFAULT_NAME
    if path.is_file():
        return path
    project = folder / "pyproject.toml"
    return project if project.is_file() and _mentions_table(project) else None


def _mentions_table(project: Path) -> bool:
    """Somebody else's broken pyproject.toml is not ours to complain about, unless it is meant for us."""
    try:
        return f"tool.{TABLE}" in project.read_text(encoding="utf-8") and _table(project) is not None
    except (OSError, UnicodeDecodeError):
        return False
