"""`gemma-doctor explain CHECK`: what a check proves, why it matters, how to fix what it finds."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gemma_doctor.cli import options
from gemma_doctor.cli.completion import completer
from gemma_doctor.cli.listing import available, needs
from gemma_doctor.cli.output import terminal_width, wants_color, write
from gemma_doctor.report.escape import escape

if TYPE_CHECKING:  # its evidence needs numpy, and --help does not
    from gemma_doctor.check import Check

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
CHECK = typer.Argument(
    metavar="CHECK", help="Id of a check, see 'gemma-doctor list'.", autocompletion=completer("CHECK")
)


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


def render(
    check_id: str, width: int | None, color: bool, checks_dir: options.Words = None, no_plugins: bool = True
) -> str:
    """The documentation of one check, with its headings in bold where colours are wanted.

    Raises:
        DoctorError: there is no such check, or one of others cannot be used.
    """
    from gemma_doctor import registry
    from gemma_doctor.check import BUILT_IN
    from gemma_doctor.documentation import HEADINGS

    check = registry.by_id(check_id, available(checks_dir, no_plugins))
    bold = (lambda text: f"{BOLD}{text}{PLAIN}") if color else (lambda text: text)
    written = "\n".join(map(escape, check.documentation.splitlines()))
    lines = fit(written, width, HEADINGS)
    body = [bold(line) if line in HEADINGS else line for line in lines]
    static = "; also runs in check --static" if check.is_static else ""
    source = "" if check.source == BUILT_IN else f", of {escape(check.source)}"
    head = fit(f"{check.id}, group {check.group}{source}; needs {needs(check)}{static}", width)
    return "\n".join([*(bold(line) for line in head), "", *body, *_thresholds(check, bold)]) + "\n"


def _thresholds(check: Check, bold: Callable[[str], str]) -> Iterator[str]:
    """What a run file may set, with its usual value."""
    if check.thresholds:
        yield from ("", bold(f"Thresholds, as in a run file's thresholds: {{{check.id}: {{...}}}}"))
        yield from (f"    {name}: {value:g}" for name, value in check.thresholds.items())


def explain(
    check: Annotated[str, CHECK], checks_dir: options.ChecksDir = None, no_plugins: options.NoPlugins = False
) -> None:
    """Say what a check proves and how to fix its findings."""
    color = wants_color("auto", os.environ, sys.stdout.isatty())
    write(render(check, terminal_width(), color, checks_dir, no_plugins))
