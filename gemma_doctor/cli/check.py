"""`gemma-doctor check`: examine a subject."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemma_doctor.cli.deadline import deadline
from gemma_doctor.cli.output import Destination, say, terminal_width, wants_color
from gemma_doctor.errors import DoctorError, TimedOut
from gemma_doctor.finding import Report

if TYPE_CHECKING:  # reading YAML and the like can wait until after --help
    from gemma_doctor.settings import Settings


def _option(*names: str, metavar: str | None = None, help: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, show_default=False)


# Values stay texts here; settings.py reads flags, environment and run files alike.
Word = str | None
Words = list[str] | None
SUBJECT = typer.Argument(
    metavar="SUBJECT",
    show_default=False,
    help="A preset (see 'gemma-doctor presets'), a folder with a config.json, a config.json, a run file (.yaml) or a "
    "hub id. Without one: gemma-doctor.yaml or [tool.gemma-doctor] in pyproject.toml here, else gemma-3-270m.",
)
CONFIG = _option(metavar="FILE", help="Run file: the long options below as keys, plus subject, overrides, expect.")
WEIGHTS = _option(metavar="auto|real|skeleton", help="auto: the real ones if they are on this machine. [auto]")
PROMPT = _option(metavar="TEXT", help="Prompt to examine.")
PROMPT_FILE = _option(metavar="FILE", help="File with the prompt; - is stdin.")
MAX_NEW_TOKENS = _option(metavar="N", help="Cap on the long generation. [across the window]")
MARGIN = _option(metavar="N", help="Tokens to generate past the window's edge. [64]")
DEVICE = _option(metavar="auto|cpu|cuda|cuda:1|mps", help="Where to run. [auto]")
DTYPE = _option(metavar="auto|float32|bfloat16|float16", help="Precision to examine in. [auto]")
ATTENTION = _option(metavar="NAME", help="Attention backend: eager, sdpa ... [the library's choice]")
SEED = _option(metavar="N", help="Of random weights and tokens. [0]")
SELECT = _option(metavar="IDS", help="Run only these checks or groups, e.g. mask,rope-theta.")
IGNORE = _option(metavar="IDS", help="Leave these checks or groups out.")
FAIL_ON = _option(metavar="note|warning|error|never", help="Least severity that makes exit code 1. [error]")
STRICT_SKIPS = _option("--strict-skips", help="Exit 2 when a selected check could not be evaluated.")
REQUIRE = _option(metavar="IDS", help="Exit 2 when one of these could not be evaluated.")
STATIC = _option("--static", help="Look at the published file only; loads no model and is done at once.")
TIMEOUT = _option(metavar="SECONDS", help="End the run after this time, report what is known, exit 2.")
FORMAT = _option(metavar="text|json", help="Form of the report. [text]")
OUTPUT = _option(metavar="FILE", help="Write the report there instead of to stdout.")
COLOR = _option(metavar="auto|always|never", help="Colours in the text report. [auto]")
VERBOSE = typer.Option("-v", "--verbose", count=True, show_default=False, help="Every check, all layers, all reasons.")
QUIET = _option("-q", "--quiet", help="Only headline, causes and exit code; no progress.")
DEBUG = _option("--debug", help="Show the traceback of whatever ends the run.")


def check(
    subject: Annotated[Word, SUBJECT] = None,
    config: Annotated[Word, CONFIG] = None,
    weights: Annotated[Word, WEIGHTS] = None,
    prompt: Annotated[Word, PROMPT] = None,
    prompt_file: Annotated[Word, PROMPT_FILE] = None,
    max_new_tokens: Annotated[Word, MAX_NEW_TOKENS] = None,
    margin: Annotated[Word, MARGIN] = None,
    device: Annotated[Word, DEVICE] = None,
    dtype: Annotated[Word, DTYPE] = None,
    attn_implementation: Annotated[Word, ATTENTION] = None,
    seed: Annotated[Word, SEED] = None,
    select: Annotated[Words, SELECT] = None,
    ignore: Annotated[Words, IGNORE] = None,
    fail_on: Annotated[Word, FAIL_ON] = None,
    strict_skips: Annotated[bool, STRICT_SKIPS] = False,
    require: Annotated[Words, REQUIRE] = None,
    static: Annotated[bool, STATIC] = False,
    timeout: Annotated[Word, TIMEOUT] = None,
    format: Annotated[Word, FORMAT] = None,
    output: Annotated[Word, OUTPUT] = None,
    color: Annotated[Word, COLOR] = None,
    verbose: Annotated[int, VERBOSE] = 0,
    quiet: Annotated[bool, QUIET] = False,
    debug: Annotated[bool, DEBUG] = False,
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
            traceback.print_exc()
        raise
    raise typer.Exit(exit_code)


def _run(settings: Settings) -> int:
    with Destination(settings.output) as destination:
        report = _examine(settings)
        destination.write(_render(report, settings))
    if destination.path is not None and not settings.quiet:
        say(f"report written to {settings.output}")
    return report.exit_code


def _examine(settings: Settings) -> Report:
    progress = (lambda line: None) if settings.quiet else say
    try:
        # Whatever a library prints on the way must not get into the report.
        with deadline(settings.timeout), contextlib.redirect_stdout(sys.stderr):
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
