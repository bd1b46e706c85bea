"""`gemma-doctor drill`: would the checks have noticed?

Exit codes: 0 every applicable fault was caught by the right check; 1 not every one; 2 it could not be drilled; 130
interrupted, with what is known by then.
The JSON document is described by report/drill.schema.json.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from gemma_doctor.cli import options
from gemma_doctor.cli.deadline import deadline_or_error
from gemma_doctor.cli.options import Word, Words, option, switch
from gemma_doctor.cli.output import Destination, aside, say, terminal_width, wants_color
from gemma_doctor.errors import DoctorError
from gemma_doctor.report.escape import escape

if TYPE_CHECKING:
    from gemma_doctor.drilled import DrillReport
    from gemma_doctor.settings import Progress, Settings


def drill(
    subject: options.Subject = None,
    faults: Annotated[Words, option("NAMES", "Only these faults, e.g. right-padding,window-ignored. [all]")] = None,
    config: options.Config = None,
    weights: Annotated[
        Word,
        option("auto|real|skeleton", "real: drill the weights themselves, which takes long. [skeleton]"),
    ] = None,
    offline: options.Offline = False,
    revision: options.Revision = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    attn_implementation: options.AttnImplementation = None,
    seed: options.Seed = None,
    routes: Annotated[
        Words, option("ROUTES", "Ways of generating that are in use: their faults are drilled. [see list]")
    ] = None,
    depth: Annotated[
        Word, option("quick|default|deep", "Routes whose faults are drilled, as check looks at them. [default]")
    ] = None,
    timeout: options.Timeout = None,
    format: Annotated[Word, option("text|json", "Form of the report. [text]")] = None,
    output: Annotated[Word, option("FILE", "Write the report there instead of to stdout.")] = None,
    color: options.Color = None,
    verbose: Annotated[
        int,
        typer.Option("-v", "--verbose", count=True, show_default=False, help="Names of what follows from each fault."),
    ] = 0,
    quiet: Annotated[
        bool, switch("-q --quiet", "Only headline, faults not caught, and exit code; no progress.")
    ] = False,
    debug: options.Debug = False,
) -> None:
    """Put known faults into a healthy subject: is each noticed?

    One at a time, each taken out again: the check that it belongs to must be the only cause. Exit code 1: not for every
    fault that the subject can have. Checks of other distributions and folders take no part.
    """
    given = {name: value for name, value in locals().items() if value not in (None, False, 0, [])}
    from gemma_doctor import settings

    names = _names(given.pop("faults", ()))
    own = _built_in_only(_of_a_drill(settings.resolve(given, os.environ)))
    with options.ending(own.debug):
        exit_code = _run(own, names)
    raise typer.Exit(exit_code)


def _names(words: object) -> tuple[str, ...]:
    """The faults that were named; refused here already if there are none such, since the drill itself needs torch."""
    from gemma_doctor.fault_names import fault_names, require_known
    from gemma_doctor.setting_values import names

    if not words:
        return ()
    try:
        found = names(words)
    except ValueError as error:
        raise DoctorError(f"--faults {error}", "gemma-doctor list shows them all") from None
    require_known(found, fault_names())
    return found


def _of_a_drill(settings: Settings) -> Settings:
    """Without what means a check's own prompt or texts, and with the skeleton unless the flag itself says otherwise."""
    from gemma_doctor.settings import Settings

    plain = Settings()
    by_flag = settings.origins["weights"] == "flag"
    return replace(
        settings,
        weights=settings.weights if by_flag else "skeleton",
        origins=settings.origins if by_flag else {**settings.origins, "weights": "default"},
        format=options.text_or_json(settings),
        output=settings.output if settings.origins["output"] == "flag" else None,
        prompts=plain.prompts,
        max_new_tokens=plain.max_new_tokens,
        length=plain.length,
        max_length=plain.max_length,
        static=plain.static,
        require=plain.require,
    )


def _built_in_only(settings: Settings) -> Settings:
    """Without the checks of others, also where a run file names them.

    Raises:
        DoctorError: only such checks are selected.
    """
    from gemma_doctor.check import GROUPS
    from gemma_doctor.registry import all_ids

    named = {*settings.select, *settings.ignore, *settings.severity, *settings.thresholds}
    named.update(one.check for one in settings.suppress)
    foreign = named.difference(all_ids(plugins=False), GROUPS)
    if foreign:  # a name that nobody has stays, and is refused
        foreign &= {*all_ids(settings.checks_dir, plugins=not settings.no_plugins)}
    select = tuple(name for name in settings.select if name not in foreign)
    if settings.select and not select:
        raise DoctorError("--select: none of these checks is built in", "a drill tries the built-in checks only")
    return replace(
        settings,
        checks_dir=(),
        no_plugins=True,
        select=select,
        ignore=tuple(name for name in settings.ignore if name not in foreign),
        severity={name: one for name, one in settings.severity.items() if name not in foreign},
        thresholds={name: one for name, one in settings.thresholds.items() if name not in foreign},
        suppress=tuple(one for one in settings.suppress if one.check not in foreign),
    )


def _run(settings: Settings, names: Sequence[str]) -> int:
    from gemma_doctor.report import drill as report_of

    if settings.weights == "real" and not settings.quiet:
        say("the real weights: each fault takes an examination of its own, which takes long; a skeleton takes a second")
    with Destination(settings.output) as destination:
        report = _drill(settings, names)
        destination.write(_render(report, settings))
    if destination.path is not None:
        for one in report.not_caught:
            say(report_of.in_short(one))
        reason = report_of.exit_reason(report)
        say(f"{report_of.headline(report)}; exit {report.exit_code} ({reason}); report written to {settings.output}")
    return report.exit_code


def _drill(settings: Settings, names: Sequence[str]) -> DrillReport:
    with deadline_or_error(settings.timeout), aside(), _progress(settings.quiet) as progress:
        from gemma_doctor.drill import drill

        return drill(settings, names, progress)


def _render(report: DrillReport, settings: Settings) -> str:
    from gemma_doctor.report import drill as report_of

    if settings.format == "json":
        return report_of.document(report)
    width = terminal_width() if settings.output is None else None
    color = wants_color(settings.color, os.environ, is_terminal=width is not None)
    return report_of.text(report, width, color, verbosity=-1 if settings.quiet else settings.verbose)


@contextmanager
def _progress(quiet: bool) -> Iterator[Progress]:
    """One line per fault; on a terminal each takes the place of the one before, and the last one goes."""
    if quiet:
        yield lambda line: None
    elif not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield say
    else:
        room = max(shutil.get_terminal_size().columns - 1, 1)

        def instead(line: str) -> None:
            print(f"\r{escape(line)[:room]:<{room}}\r", end="", file=sys.stderr, flush=True)

        try:
            yield instead
        finally:
            instead("")
