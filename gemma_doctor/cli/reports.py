"""All reports of one run of `check`: the one of --format, to stdout or --output, and those of --report."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from gemma_doctor.cli.output import Destination, say, terminal_width, wants_color
from gemma_doctor.errors import DoctorError
from gemma_doctor.finding import Report
from gemma_doctor.report import formats

if TYPE_CHECKING:
    from gemma_doctor.settings import Settings

# The variable that names the file of a job's summary, and how many bytes GitHub takes of one step.
SUMMARY = "GITHUB_STEP_SUMMARY"
SUMMARY_LIMIT = 1024 * 1024


class Reports:
    """Every place is made ready before the run: a gate must not fail at its end for want of a folder.

    Args:
        settings: of the run.

    Raises:
        DoctorError: on entering, a place cannot be written to, or two reports have the same.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._main = Destination(settings.output)
        self._further = [(form, Destination(path, f"--report {form} to")) for form, path in settings.report]
        self._open = ExitStack()

    def __enter__(self) -> Reports:
        paths = [one.path for one in (self._main, *(one for _, one in self._further)) if one.path is not None]
        twice = next((path for path in paths if paths.count(path) > 1 and not path.is_char_device()), None)
        if twice is not None:
            raise DoctorError(f"two reports go to {twice}", "give each a file of its own")
        with ExitStack() as entered:
            for destination in (self._main, *(one for _, one in self._further)):
                entered.enter_context(destination)
            self._open = entered.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.__exit__(kind, error, at)

    def write(self, report: Report) -> None:
        """Write them all.

        Raises:
            DoctorError: one of them cannot be written; the others are.
        """
        refused: DoctorError | None = None
        for form, destination in ((self._settings.format, self._main), *self._further):
            main = destination is self._main
            try:
                destination.write(self._rendered(report) if main else formats.render(report, form))
            except DoctorError as error:
                refused = refused or error
        if self._main.path is not None:
            _say_in_short(report, self._settings.output)
        if "github" in (self._settings.format, *(form for form, _ in self._further)):
            _append_summary(report, os.environ.get(SUMMARY))
        if refused is not None:
            raise refused

    def _rendered(self, report: Report) -> str:
        """The report of --format; text has the width and colours of the terminal, if it goes to one."""
        settings = self._settings
        if settings.format != "text":
            return formats.render(report, settings.format)
        from gemma_doctor.report import text

        width = terminal_width() if settings.output is None else None
        color = wants_color(settings.color, os.environ, is_terminal=width is not None)
        return text.render(report, width, color, verbosity=-1 if settings.quiet else settings.verbose)


def _append_summary(report: Report, path: str | None) -> None:
    """The table of the job's summary, where there is one. GitHub drops a summary that is too large as a whole."""
    from gemma_doctor.report import markdown

    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
            room = SUMMARY_LIMIT - file.tell() - 1
            text = markdown.summary(report, room)
            file.write(f"\n{text}" if text and file.tell() else text)
    except OSError as error:  # the report itself is written; this must not decide the exit code
        say(f"{SUMMARY}: the table cannot be appended to {path} ({error.strerror})")


def _say_in_short(report: Report, path: str | None) -> None:
    """What a person needs who only sees the log of a gate that stopped."""
    from gemma_doctor.report.verdict import exit_reason, headline

    for finding in report.deciding:
        say(f"{finding.severity.word} {finding.check}: {finding.title}; observed {finding.observed}")
    say(f"{headline(report)}; exit {report.exit_code} ({exit_reason(report)}); report written to {path}")
