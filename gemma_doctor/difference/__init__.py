"""Two documents of this tool held against each other: what got worse, better, changed.

Either two reports (`check --format json`), the first of which is what was, or two documents of facts about layers
(`facts --format json`, or another engine's, written by hand). No torch, no transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemma_doctor.difference import of_facts, of_reports
from gemma_doctor.difference.changes import Change, Difference
from gemma_doctor.errors import DoctorError
from gemma_doctor.json_file import read_mapping
from gemma_doctor.layer_facts import DOCUMENT as FACTS
from gemma_doctor.layer_facts import SCHEMA_VERSION as FACTS_VERSION
from gemma_doctor.report.json import SCHEMA_VERSION as REPORT_VERSION

__all__ = ["Change", "Difference", "difference"]

HINT = "gemma-doctor check SUBJECT --format json --output FILE writes one"
FACTS_HINT = "gemma-doctor facts SUBJECT --format json writes one"


@dataclass(frozen=True)
class _Kind:
    """A kind of document.

    Attributes:
        name: in words.
        version: of its schema that is read here.
        hint: how one is made.
        compare: two of them, with their names.
    """

    name: str
    version: int
    hint: str
    compare: Callable[[Mapping[str, Any], Mapping[str, Any], str, str], Difference]


REPORT = _Kind("a report of check", REPORT_VERSION, HINT, of_reports.difference)
LAYER_FACTS = _Kind("a document of facts", FACTS_VERSION, FACTS_HINT, of_facts.difference)


def difference(before: str, after: str) -> Difference:
    """Hold the second file against the first.

    Raises:
        DoctorError: a file cannot be read, is no such document or one of another schema, the two are of different
            kinds, or have nothing in common that could be compared.
    """
    first, second = (read_mapping(Path(path), HINT) for path in (before, after))
    kind, other = _kind(first, before), _kind(second, after)
    if kind is not other:
        raise DoctorError(f"{before} is {kind.name}, and {after} is {other.name}", "compare two of the same kind")
    return kind.compare(first, second, before, after)


def _kind(content: Mapping[str, Any], path: str) -> _Kind:
    if content.get("document") == FACTS:
        kind = LAYER_FACTS
    elif "gemma_doctor" in content and "results" in content:
        kind = REPORT
    else:
        raise DoctorError(
            f"{path}: neither a report of check nor a document of facts",
            f'{HINT}; facts by hand begin with "schema_version": {FACTS_VERSION}, "document": "{FACTS}"',
        )
    version = content.get("schema_version")
    if version != kind.version or isinstance(version, bool):
        raise DoctorError(
            f"{path}: {kind.name} of schema {str(version)[:20]}, and {kind.version} is read here",
            "write both with the same release of gemma-doctor",
        )
    return kind
