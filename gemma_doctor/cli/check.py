"""`gemma-doctor check`: examine a subject."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from gemma_doctor.cli import options
from gemma_doctor.cli.deadline import deadline_or_error
from gemma_doctor.cli.figures import drawn, require_folder
from gemma_doctor.cli.options import Word, Words, option, switch
from gemma_doctor.cli.output import aside, say, write
from gemma_doctor.cli.reports import Reports
from gemma_doctor.cli.update import Update
from gemma_doctor.finding import Report
from gemma_doctor.report.formats import FORMATS

if TYPE_CHECKING:  # reading YAML and the like can wait until after --help
    from gemma_doctor.settings import Settings


def check(
    subject: options.Subject = None,
    config: options.Config = None,
    weights: options.Weights = None,
    offline: options.Offline = False,
    revision: options.Revision = None,
    prompt: options.Prompts = None,
    prompt_file: options.PromptFiles = None,
    chat: options.Chats = None,
    length: Annotated[Word, option("N", "Tokens of the long text whose loss is measured. [three windows]")] = None,
    max_length: Annotated[Word, option("N", "Show what is lost where prompts are cut at this length.")] = None,
    max_new_tokens: Annotated[Word, option("N", "Cap on the long generation. [across the window]")] = None,
    margin: Annotated[Word, option("N", "Tokens to generate past the window's edge. [64]")] = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    attn_implementation: options.AttnImplementation = None,
    expect: Annotated[
        Word, option("PRESET", "Hold the configuration against this preset: a mismatch is an error.")
    ] = None,
    seed: options.Seed = None,
    routes: Annotated[
        Words, option("ROUTES", "Ways of generating that are in use: a fault of one is an error. [see list]")
    ] = None,
    depth: Annotated[
        Word, option("quick|default|deep", "Routes to look at: those in use; the usual; all, as if in use. [default]")
    ] = None,
    select: Annotated[Words, option("IDS", "Run only these checks or groups, e.g. mask,rope-theta.")] = None,
    ignore: Annotated[Words, option("IDS", "Leave these checks or groups out.")] = None,
    fail_on: Annotated[
        Word, option("note|warning|error|never", "Least severity that makes exit code 1. [error]")
    ] = None,
    strict_skips: Annotated[
        bool, switch("--strict-skips", "Exit 2 when a selected check could not be evaluated.")
    ] = False,
    require: Annotated[Words, option("IDS", "Exit 2 when one of these could not be evaluated.")] = None,
    static: Annotated[
        bool, switch("--static", "Look at the published file only; loads no model and is done at once.")
    ] = False,
    timeout: options.Timeout = None,
    format: Annotated[Word, option("|".join(FORMATS), "Form of the report. [text]")] = None,
    output: Annotated[Word, option("FILE", "Write the report there instead of to stdout.")] = None,
    report: Annotated[
        Words, option("FORMAT=FILE", "Write the report there as well, in this form; may be given several times.")
    ] = None,
    baseline: Annotated[
        Word, option("FILE", "What is known of a good run: findings in it do not count, worse figures are findings.")
    ] = None,
    update_baseline: Annotated[
        bool, switch("--update-baseline", "Write what this run finds and measures into that file.")
    ] = False,
    checks_dir: options.ChecksDir = None,
    no_plugins: options.NoPlugins = False,
    figures: Annotated[
        Word, option("DIR", "Draw the wrong cells of each finding that has some, as CHECK-N.png in this folder.")
    ] = None,
    color: options.Color = None,
    verbose: Annotated[
        int,
        typer.Option(
            "-v", "--verbose", count=True, show_default=False, help="Every check and pass, all layers and reasons."
        ),
    ] = 0,
    quiet: Annotated[bool, switch("-q --quiet", "Only headline, causes and exit code; no progress.")] = False,
    show_config: Annotated[bool, switch("--show-config", "Say what each setting is and where it comes from.")] = False,
    debug: options.Debug = False,
) -> None:
    """Examine a subject and say which link is broken."""
    given = {name: value for name, value in locals().items() if value not in (None, False, 0, [])}
    given.pop("show_config", None)
    from gemma_doctor.settings import resolve

    settings = resolve(given, os.environ)
    if show_config:
        from gemma_doctor.cli import shown_settings

        write(shown_settings.render(settings))
        return
    with options.ending(settings.debug):
        exit_code = _run(settings)
    raise typer.Exit(exit_code)


def _run(settings: Settings) -> int:
    if settings.figures is not None:
        require_folder(settings.figures)
    with Reports(settings) as reports, Update(settings) as update:
        report = _examine(settings)
        try:
            if settings.figures is not None:
                report = drawn(report, settings.figures)
                curves = any(result.examined and result.examined.curve for result in report.results)
                if not curves and not any(finding.figure for finding in report.findings):
                    say("figures: none drawn; only findings of mask-pattern have cells to draw, and recall a curve")
        finally:  # what was found is said in any case
            reports.write(report)
        update.write(report)
    return report.exit_code


def _examine(settings: Settings) -> Report:
    progress = (lambda line: None) if settings.quiet else say
    with deadline_or_error(settings.timeout), aside():
        from gemma_doctor.diagnosis import diagnose

        return diagnose(settings, progress)
