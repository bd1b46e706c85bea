"""For people who guard their own decoder with pytest: `pytest --gemma-doctor SUBJECT`, and a fixture.

pytest loads this module in every session of an environment that has gemma-doctor, whoever's tests they are: it imports
nothing heavy, and does nothing unless it is asked.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from gemma_doctor.errors import DoctorError
    from gemma_doctor.finding import CheckResult, Report
    from gemma_doctor.settings import Settings

NAME = "gemma-doctor"  # of the pseudo-files, of the section in the summary, and of the properties that it is made of


def pytest_addoption(parser: pytest.Parser) -> None:
    """Two options; `addopts` in the project's pytest settings holds them for every run."""
    group = parser.getgroup(NAME, "examine decoder attention")
    group.addoption(
        "--gemma-doctor",
        action="append",
        default=[],
        metavar="SUBJECT",
        dest="gemma_doctor_subjects",
        help="Examine SUBJECT, as gemma-doctor check does: one test for each check; may be given several times.",
    )
    group.addoption(
        "--gemma-doctor-config",
        metavar="FILE",
        dest="gemma_doctor_config",
        help="Run file with the settings of these examinations.",
    )


@pytest.hookimpl(hookwrapper=True)  # before the others: -k and --deselect see these tests too
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Add the tests of every subject, reported as those of a file are."""
    for subject in dict.fromkeys(config.option.gemma_doctor_subjects):
        examination = Examination.from_parent(session, name=f"{NAME} {subject}", subject=subject)
        hooks = examination.ihook
        hooks.pytest_collectstart(collector=examination)
        report = hooks.pytest_make_collect_report(collector=examination)
        hooks.pytest_collectreport(report=report)
        items.extend(report.result)
    yield


class Examination(pytest.Collector):
    """One subject. It is examined once, when the first of its tests is due; by each worker of xdist that gets one of
    them, unless `--dist loadfile` keeps them together.

    Args:
        subject: SUBJECT as given.
        more: what pytest's nodes take.
    """

    def __init__(self, *, subject: str, **more: Any) -> None:
        super().__init__(nodeid=more["name"], **more)
        self.subject = subject
        self._settings: Settings | None = None
        self._report: Report | None = None
        self._refused = ""

    def collect(self) -> Iterator[pytest.Item]:
        """One test for each check that is chosen."""
        from gemma_doctor import diagnosis, settings, subject
        from gemma_doctor.errors import DoctorError

        config = self.config.option.gemma_doctor_config
        flags = {"subject": self.subject} | ({"config": config} if config else {})
        try:
            self._settings = settings.resolve(flags, os.environ)
            checks = diagnosis.chosen_checks(self._settings)
            subject.resolve(self._settings)  # whether there is such a thing is said before any test runs
        except DoctorError as error:
            raise self.CollectError(_in_two_lines(error)) from None
        for one in checks:
            yield CheckItem.from_parent(self, name=one.id)

    def report(self) -> Report:
        """What the examination said.

        Raises:
            pytest.fail.Exception: it could not be made.
            pytest.skip.Exception: the same, for every test after the first.
        """
        if self._refused:
            pytest.skip(f"not examined: {self._refused}")
        if self._report is None:
            self._report = self._examined()
            if not self._report.looked:
                from gemma_doctor.report.verdict import exit_reason

                self._refuse(exit_reason(self._report))
        return self._report

    def _examined(self) -> Report:
        from gemma_doctor.diagnosis import diagnose
        from gemma_doctor.errors import DoctorError, in_one_line

        assert self._settings is not None
        try:
            with _undisturbed(self._settings):
                report = diagnose(self._settings, lambda line: None)
        except DoctorError as error:
            self._refuse(_in_two_lines(error))
        except Exception as error:
            self._refused = in_one_line(error)
            raise
        if report.interrupted:
            raise KeyboardInterrupt
        return report

    def _refuse(self, why: str) -> Any:
        self._refused = why.splitlines()[0]
        pytest.fail(f"{self.subject} could not be examined: {why}", pytrace=False)

    def is_demanded(self, result: CheckResult) -> bool:
        """The check must not be left without an answer (strict-skips, require)."""
        assert self._settings is not None
        return self._settings.strict_skips or bool({result.check, result.group} & set(self._settings.require))


class CheckItem(pytest.Item):
    """What one check said of one subject, as a test: it fails with a finding at or above `fail-on`."""

    parent: Examination

    def setup(self) -> None:
        """Examine the subject, if this is its first test. What could not be made is an error, and no failure."""
        from gemma_doctor.finding import Outcome
        from gemma_doctor.report.escape import escape
        from gemma_doctor.report.verdict import headline

        report = self.parent.report()
        self.user_properties.append((NAME, f"{self.parent.subject}: {headline(report)}"))
        result = self._result(report)
        reason = escape(result.reason)
        if result.outcome is Outcome.ERROR:
            pytest.fail(f"{self.name}: {reason}", pytrace=False)
        if result.outcome is Outcome.SKIPPED and self.parent.is_demanded(result):
            pytest.fail(f"{self.name} is demanded and was not evaluated: {reason}", pytrace=False)
        if result.outcome is Outcome.SKIPPED:
            pytest.skip(f"{self.name} was not evaluated: {reason}")
        if result.outcome is Outcome.NOT_APPLICABLE:
            pytest.skip(f"{self.name} is n/a: {reason}")

    def runtest(self) -> None:
        """Fail with the findings that decide, as the text report shows them; name the others in the summary."""
        from gemma_doctor.report import text

        report = self.parent.report()
        findings = self._result(report).findings
        failing = [one for one in findings if report.fail_on is not None and one.severity >= report.fail_on]
        for one in findings:
            if one not in failing:
                said = f"{self.parent.subject}: {one.severity.word} {self.name}: {one.title}; observed {one.observed}"
                self.user_properties.append((NAME, said))
        if failing:
            pytest.fail(text.findings(report, failing), pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"{self.parent.name}: {self.name}"

    def _result(self, report: Report) -> CheckResult:
        return next(one for one in report.results if one.check == self.name)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The verdict on every subject, and what does not fail a test: warnings and notes.

    They come from the tests' own reports, since with pytest-xdist the examinations are made in other processes.
    """
    from gemma_doctor.report.escape import escape

    reports = [one for some in terminalreporter.stats.values() for one in some if isinstance(one, pytest.TestReport)]
    said = [value for one in reports for name, value in one.user_properties if name == NAME]
    if said:
        terminalreporter.write_sep("=", NAME)
        for line in dict.fromkeys(map(str, said)):
            terminalreporter.write_line(escape(line))


@pytest.fixture
def gemma_doctor_diagnose(record_property: Callable[[str, object], None]) -> Callable[..., Report]:
    """`gemma_doctor.diagnose`: a function from a model in memory, its tokenizer and settings to a Report.

    What libraries warn of during the examination fails no test, whatever the filters of the session, and the verdict
    stands in the summary of the session. `gemma_doctor.assertions.assert_healthy` fails a test with the report.
    """

    def diagnose(model: Any, tokenizer: Any = None, **settings: Any) -> Report:
        import gemma_doctor
        from gemma_doctor.report.verdict import headline

        with _warnings_left_alone():
            report: Report = gemma_doctor.diagnose(model, tokenizer, **settings)
        record_property(NAME, f"{report.subject['name']}: {headline(report)}")
        return report

    return diagnose


@contextlib.contextmanager
def _undisturbed(settings: Settings) -> Iterator[None]:
    """The tests that come after find the process as it was."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_warnings_left_alone())
        if not settings.static:  # else torch is not even imported
            from gemma_doctor.restored import process_restored

            stack.enter_context(process_restored())
        yield


@contextlib.contextmanager
def _warnings_left_alone() -> Iterator[None]:
    """A session that makes errors of warnings means its own code, not how a library answers an examination."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _in_two_lines(error: DoctorError) -> str:
    """What, and what to do."""
    from gemma_doctor.report.escape import escape

    return "\n".join(escape(line) for line in (error.message, error.hint) if line)
