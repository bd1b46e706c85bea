"""`check --update-baseline`: writes what a run found and measured."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from gemma_doctor.cli.output import Destination, say
from gemma_doctor.finding import Report

if TYPE_CHECKING:
    from gemma_doctor.baseline import Baseline
    from gemma_doctor.settings import Settings


class Update:
    """The place of the baseline, made ready before the run; nothing where none is to be written.

    Args:
        settings: of the run.

    Raises:
        DoctorError: on entering, what lies there is no baseline, or cannot be written.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._old: Baseline | None = None
        self._file = Destination(settings.baseline, "--baseline") if settings.update_baseline else None

    def __enter__(self) -> Update:
        if self._file is not None:
            from gemma_doctor.baseline_file import baseline_of

            self._old = baseline_of(self._settings)
            self._file.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.__exit__(kind, error, at)

    def write(self, report: Report) -> None:
        """Write it; the old one stays where a run could not examine what it should.

        Raises:
            DoctorError: it cannot be written.
        """
        if self._file is None:
            return
        if report.exit_code != 0:
            say(f"baseline: {self._settings.baseline} stays as it was, since the run ended with {report.exit_code}")
            return
        from gemma_doctor import baseline_file

        self._file.write(baseline_file.render(report, self._old))
        say(f"baseline: written to {self._settings.baseline}")
