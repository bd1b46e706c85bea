"""`gemma-doctor advisories`: the list of public faults, by release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from gemma_doctor.cli.options import Word, option
from gemma_doctor.cli.output import terminal_width, write
from gemma_doctor.cli.table import table
from gemma_doctor.errors import DoctorError

if TYPE_CHECKING:
    from gemma_doctor.evidence import Advisory

FORMATS = ("text", "json")
HEAD = ("", "advisory", "releases", "families", "routes", "what happens, what to do, where it was reported")
FIELDS = ("id", "title", "releases", "fixed", "families", "needs", "routes", "backends", "dtypes", "devices", "symptom")
MARK = "*"


def advisories(
    transformers: Annotated[
        Word, option("VERSION", "Only faults of this release of transformers, such as 4.57.6. [all]")
    ] = None,
    format: Annotated[Word, option("text|json", "Form of the table. [text]")] = None,
) -> None:
    """List public faults of transformers, by release."""
    if format not in (None, *FORMATS):
        raise DoctorError(f"--format is {format!r}; it takes {' or '.join(FORMATS)}", "leave it out for a table")
    from gemma_doctor.advisories import affects, entries
    from gemma_doctor.facts import version_of

    listed = [one.advisory for one in entries()]
    if transformers is not None:
        listed = [one for one in listed if affects(one, transformers)]
    installed = version_of("transformers")
    here = {one.id for one in listed if installed is not None and affects(one, installed)}
    write(_document(listed, here, installed) if format == "json" else _text(listed, here, installed, transformers))


def _text(listed: list[Advisory], here: set[str], installed: str | None, asked: str | None) -> str:
    from gemma_doctor.report.escape import escape

    rows = []
    for one in listed:
        cells = (
            MARK if one.id in here else "",
            one.id,
            one.releases,
            ", ".join(one.families) or "all",
            ", ".join(one.routes) or "all",
            " | ".join(part for part in (one.symptom, one.fix, one.url) if part),
        )
        rows.append(tuple(map(escape, cells)))
    found = table(HEAD, rows, terminal_width()) + "\n" if rows else ""
    return f"{found}{_count(len(listed), len(here), installed, asked)}\n"


def _count(listed: int, here: int, installed: str | None, asked: str | None) -> str:
    from gemma_doctor.finding import counted
    from gemma_doctor.report.escape import escape

    said = counted(listed, "known fault")
    said += f" for transformers {escape(asked)}" if asked is not None else ""
    if installed is None:
        return f"{said}; transformers is not installed here."
    return f"{said}; {here} of them ({MARK}) in the installed {escape(installed)}."


def _document(listed: list[Advisory], here: set[str], installed: str | None) -> str:
    import json

    def entry(one: Advisory) -> dict[str, Any]:
        fields = {name: getattr(one, name) for name in (*FIELDS, "fix", "meanwhile", "url", "related", "verified")}
        return {**fields, "shown_by": dict(one.shown_by), "installed": one.id in here}

    return json.dumps({"transformers": installed, "advisories": [entry(one) for one in listed]}, indent=2) + "\n"
