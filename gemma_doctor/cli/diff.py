"""`gemma-doctor diff`: hold one document against another.

Exit codes: 0 nothing got worse; 1 something did, or two documents of facts do not agree; 2 they cannot be compared.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from gemma_doctor.cli import options
from gemma_doctor.cli.options import Word, option
from gemma_doctor.cli.output import Destination, terminal_width, wants_color

BEFORE = typer.Argument(metavar="BEFORE", help="A report (check --format json), or facts (facts --format json).")
AFTER = typer.Argument(metavar="AFTER", help="Another one of the same kind.")


def diff(
    before: Annotated[str, BEFORE],
    after: Annotated[str, AFTER],
    format: Annotated[Word, option("text|json", "Form of the comparison. [text]")] = None,
    output: Annotated[Word, option("FILE", "Write it there instead of to stdout.")] = None,
    color: options.Color = None,
) -> None:
    """Say what got worse, better or changed between two reports."""
    from gemma_doctor.difference import difference
    from gemma_doctor.report import difference as report

    form = options.choice("--format", format, "text", "json")
    colors = options.choice("--color", color, "auto", "always", "never")
    with Destination(output if output != "-" else None) as destination:
        found = difference(before, after)
        width = terminal_width() if destination.path is None else None
        colored = wants_color(colors, os.environ, is_terminal=width is not None)
        destination.write(report.document(found) if form == "json" else report.text(found, width, colored))
    raise typer.Exit(found.exit_code)
