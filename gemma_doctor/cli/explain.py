"""`gemma-doctor explain CHECK`: what a check proves, why it matters, how to fix what it finds."""

from __future__ import annotations

import inspect
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from gemma_doctor.cli.listing import needs
from gemma_doctor.cli.output import terminal_width, wants_color, write

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
CHECK = typer.Argument(metavar="CHECK", help="Id of a check, see 'gemma-doctor list'.")


def fit(text: str, width: int | None, headings: Sequence[str] = ()) -> Iterator[str]:
    """The lines of a text; on a terminal its paragraphs are filled anew. A new indent begins a paragraph."""
    paragraph: list[str] = []
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        goes_on = paragraph and line and indent == len(paragraph[0]) - len(paragraph[0].lstrip())
        if width is None or not goes_on or line in headings:
            yield from _filled(paragraph, width)
            paragraph = []
        paragraph.append(line)
    yield from _filled(paragraph, width)


def _filled(paragraph: list[str], width: int | None) -> list[str]:
    if width is None or not paragraph or not paragraph[0]:
        return paragraph
    indent = paragraph[0][: len(paragraph[0]) - len(paragraph[0].lstrip())]
    text = " ".join(line.strip() for line in paragraph)
    return textwrap.wrap(text, min(width, 120), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def render(check_id: str, width: int | None, color: bool) -> str:
    """The documentation of one check, with its headings in bold where colours are wanted.

    Raises:
        DoctorError: there is no such check.
    """
    from gemma_doctor import registry

    check = registry.by_id(check_id, registry.built_in())
    documentation = inspect.cleandoc(sys.modules[check.function.__module__].__doc__ or "")
    bold = (lambda text: f"{BOLD}{text}{PLAIN}") if color else (lambda text: text)
    lines = fit(documentation, width, registry.HEADINGS)
    body = [bold(line) if line in registry.HEADINGS else line for line in lines]
    static = "; also runs in check --static" if check.is_static else ""
    head = fit(f"{check.id}, group {check.group}; needs {needs(check)}{static}", width)
    return "\n".join([*(bold(line) for line in head), "", *body]) + "\n"


def explain(check: Annotated[str, CHECK]) -> None:
    """Say what a check proves and how to fix its findings."""
    write(render(check, terminal_width(), wants_color("auto", os.environ, sys.stdout.isatty())))
