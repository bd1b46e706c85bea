"""Where in the subject's configuration file the keys stand that findings are about.

The file is the subject's config.json; or, where the subject is none but a run file lays keys over it, that run file. Of
a config.json under a run file the keys that are laid over it have no line: what stands there is not what was examined.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from gemma_doctor.finding import CheckResult, Finding
from gemma_doctor.published import text_part
from gemma_doctor.run_file import SUFFIXES
from gemma_doctor.settings import Settings
from gemma_doctor.subject import Subject

# JSON is nearly YAML, and a YAML parser says where things stand. The one in C is many times as fast.
_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
OVERRIDES = "overrides"

# Of every key, as its path from the top: its line, from 1.
Lines = Mapping[tuple[str, ...], int]


def located(results: Sequence[CheckResult], subject: Subject, settings: Settings) -> tuple[CheckResult, ...]:
    """Findings with the line of the first of their keys that stands in the file; of its nearest parent, if it does not.

    Nothing here is worth failing for: what cannot be read has no lines.
    """
    path = config_file(subject, settings)
    if path is None or not any(finding.keys for one in results for finding in one.findings):
        return tuple(results)
    lines, hidden = lines_of(path), set(settings.overrides)
    if path.suffix in SUFFIXES:
        lines, hidden = _laid_over(lines, text_part(subject.published)[1]), set()

    def placed(finding: Finding) -> Finding:
        return replace(finding, line=_line((key for key in finding.keys if not hidden & {*key.split(".")}), lines))

    return tuple(replace(one, findings=tuple(map(placed, one.findings))) for one in results)


def config_file(subject: Subject, settings: Settings) -> Path | None:
    """The file in which whoever runs this would correct a value; None if there is none (a preset, a hub id, a GGUF)."""
    if subject.kind == "config file":
        return Path(subject.name).expanduser()
    if subject.folder is not None and subject.repository is None and not subject.demo:
        return subject.folder / "config.json"
    run_file = Path(settings.run_file) if settings.run_file else None
    return run_file if run_file is not None and settings.overrides and run_file.suffix in SUFFIXES else None


def shown_path(subject: Subject, settings: Settings) -> str | None:
    """That file for reports: from the working folder, if it lies below, with "/" on every system."""
    path = config_file(subject, settings)
    if path is None:
        return None
    whole = Path(os.path.abspath(path))  # noqa: PTH100 (as it was named: no link is followed)
    here = Path.cwd()
    return (whole.relative_to(here) if whole.is_relative_to(here) else whole).as_posix()


def lines_of(path: Path) -> Lines:
    """Lines of all keys of a JSON or YAML file; none if it is neither.

    A tab is white space in JSON and an error in YAML; within the texts of a JSON file it cannot stand.
    """
    try:
        root = yaml.compose(path.read_text(encoding="utf-8").replace("\t", " "), Loader=_Loader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}
    return dict(_keys(root, ()))


def _keys(node: yaml.Node | None, parents: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], int]]:
    """A key that stands twice counts as JSON counts it: the last one wins."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                path = (*parents, key.value)
                yield path, key.start_mark.line + 1
                yield from _keys(value, path)


def _laid_over(lines: Lines, prefix: str) -> Lines:
    """Of a run file: the keys below `overrides`, named as in the configuration that they are laid over."""
    parents = prefix.split(".")[:-1]
    return {(*parents, *key[1:]): line for key, line in lines.items() if key[0] == OVERRIDES and len(key) > 1}


def _line(keys: Iterable[str], lines: Lines) -> int | None:
    for key in keys:
        path = tuple(key.split("."))
        found = (lines.get(path[:end]) for end in range(len(path), 0, -1))
        line = next((one for one in found if one is not None), None)
        if line is not None:
            return line
    return None
