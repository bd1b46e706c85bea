"""`gemma-doctor schema NAME`: the JSON Schemas of what this tool reads and writes."""

from __future__ import annotations

from typing import Annotated

import typer

from gemma_doctor.cli.output import write
from gemma_doctor.errors import DoctorError, suggest

NAME = typer.Argument(metavar="NAME", help="One of them, such as report or run-file; without one, all names.")


def schema(name: Annotated[str | None, NAME] = None) -> None:
    """Print the JSON Schema of what is read and written."""
    from gemma_doctor.report import schemas

    known = schemas.names()
    if name is None:
        write("".join(f"{one}\n" for one in known))
        return
    if name not in known:
        raise DoctorError(f"there is no schema {name!r}{suggest(name, known)}", f"there are: {', '.join(known)}")
    write(schemas.text(name))
