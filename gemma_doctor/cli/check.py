"""`gemma-doctor check`: examine a subject."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemma_doctor.cli.deadline import deadline
from gemma_doctor.cli.output import Destination, Escaped, say, terminal_width, wants_color
from gemma_doctor.errors import DoctorError, TimedOut
from gemma_doctor.finding import Report

if TYPE_CHECKING:  # reading YAML and the like can wait until after --help
    from gemma_doctor.settings import Settings


def _option(metavar: str, help: str) -> Any:
    return typer.Option(metavar=metavar, help=help, show_default=False)


def _switch(names: str, help: str) -> Any:
    return typer.Option(*names.split(), help=help, show_default=False)


# Values stay texts here; settings.py reads flags, environment and run files alike.
Word = str | None
Words = list[str] | None


def check(
    subject: Annotated[
        Word,
        typer.Argument(
            metavar="SUBJECT",
            show_default=False,
            help="A preset (see 'gemma-doctor presets'), a folder with a config.json, a config.json, a run file "
            "(.yaml) or a hub id. Without one: gemma-doctor.yaml or [tool.gemma-doctor] in pyproject.toml here, else "
            "gemma-3-270m.",
        ),
    ] = None,
    config: Annotated[
        Word, _option("FILE", "Run file: the long options below as keys, plus subject and overrides.")
    ] = None,
    weights: Annotated[
        Word, _option("auto|real|skeleton", "auto: the real ones if they are on this machine. [auto]")
    ] = None,
    prompt: Annotated[Word, _option("TEXT", "Prompt to examine.")] = None,
    prompt_file: Annotated[Word, _option("FILE", "File with the prompt; - is stdin.")] = None,
    max_new_tokens: Annotated[Word, _option("N", "Cap on the long generation. [across the window]")] = None,
    margin: Annotated[Word, _option("N", "Tokens to generate past the window's edge. [64]")] = None,
    device: Annotated[Word, _option("auto|cpu|cuda|cuda:1|mps", "Where to run. [auto]")] = None,
    dtype: Annotated[Word, _option("auto|float32|bfloat16|float16", "Precision to examine in. [auto]")] = None,
    attn_implementation: Annotated[
        Word, _option("NAME", "Attention backend: eager, sdpa ... [the library's choice]")
    ] = None,
    expect: Annotated[
        Word, _option("PRESET", "Hold the configuration against this preset: a mismatch is an error.")
    ] = None,
    seed: Annotated[Word, _option("N", "Of random weights and tokens. [0]")] = None,
    select: Annotated[Words, _option("IDS", "Run only these checks or groups, e.g. mask,rope-theta.")] = None,
    ignore: Annotated[Words, _option("IDS", "Leave these checks or groups out.")] = None,
    fail_on: Annotated[
        Word, _option("note|warning|error|never", "Least severity that makes exit code 1. [error]")
    ] = None,
    strict_skips: Annotated[
        bool, _switch("--strict-skips", "Exit 2 when a selected check could not be evaluated.")
    ] = False,
    require: Annotated[Words, _option("IDS", "Exit 2 when one of these could not be evaluated.")] = None,
    static: Annotated[
        bool, _switch("--static", "Look at the published file only; loads no model and is done at once.")
    ] = False,
    timeout: Annotated[Word, _option("SECONDS", "End the run after this time, report what is known, exit 2.")] = None,
    format: Annotated[Word, _option("text|json", "Form of the report. [text]")] = None,
    output: Annotated[Word, _option("FILE", "Write the report there instead of to stdout.")] = None,
    color: Annotated[Word, _option("auto|always|never", "Colours in the text report. [auto]")] = None,
    verbose: Annotated[
        int,
        typer.Option("-v", "--verbose", count=True, show_default=False, help="Every check, all layers, all reasons."),
    ] = 0,
    quiet: Annotated[bool, _switch("-q --quiet", "Only headline, causes and exit code; no progress.")] = False,
    debug: Annotated[bool, _switch("--debug", "Show the traceback of whatever ends the run.")] = False,
) -> None:
    """Examine a subject and say which link is broken."""
    given = {name: value for name, value in locals().items() if value not in (None, False, 0, [])}
    from gemma_doctor.settings import resolve

    settings = resolve(given, os.environ)
    try:
        exit_code = _run(settings)
    except KeyboardInterrupt:
        say("interrupted, before anything was known")
        exit_code = 130
    except Exception:
        if settings.debug:
            for line in traceback.format_exc().splitlines():
                say(line)
        raise
    raise typer.Exit(exit_code)


def _run(settings: Settings) -> int:
    with Destination(settings.output) as destination:
        report = _examine(settings)
        destination.write(_render(report, settings))
    if destination.path is not None:
        _say_in_short(report, settings.output)
    return report.exit_code


def _say_in_short(report: Report, path: str | None) -> None:
    """What a person needs who only sees the log of a gate that stopped."""
    from gemma_doctor.report.verdict import exit_reason, headline

    for finding in report.deciding:
        say(f"{finding.severity.word} {finding.check}: {finding.title}; observed {finding.observed}")
    say(f"{headline(report)}; exit {report.exit_code} ({exit_reason(report)}); report written to {path}")


def _examine(settings: Settings) -> Report:
    progress = (lambda line: None) if settings.quiet else say
    try:
        # Whatever a library prints on the way must get neither into the report nor at the terminal's controls.
        aside = Escaped(sys.stderr)
        with deadline(settings.timeout), contextlib.redirect_stdout(aside), contextlib.redirect_stderr(aside):
            from gemma_doctor.diagnose import diagnose

            return diagnose(settings, progress)
    except TimedOut as late:
        raise DoctorError(f"{late}, before anything was known", "give it more time: --timeout SECONDS") from None


def _render(report: Report, settings: Settings) -> str:
    if settings.format == "json":
        from gemma_doctor.report import json

        return json.render(report)
    from gemma_doctor.report import text

    width = terminal_width() if settings.output is None else None
    color = wants_color(settings.color, os.environ, is_terminal=width is not None)
    return text.render(report, width, color, verbosity=-1 if settings.quiet else settings.verbose)
