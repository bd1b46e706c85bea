"""The command line: exit codes, what goes to stdout and what to stderr, files, signals, pipes, and its speed."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_reports import CRASHED, HEALTHY, INTERRUPTED, LATE, SICK, UNABLE

import gemma_doctor
from gemma_doctor import cli, diagnosis, presets, registry, routes
from gemma_doctor.cli import app, check, output
from gemma_doctor.cli.explain import render as explained
from gemma_doctor.cli.output import wants_color
from gemma_doctor.cli.table import table
from gemma_doctor.documentation import HEADINGS
from gemma_doctor.errors import DoctorError, TimedOut
from gemma_doctor.finding import Report
from gemma_doctor.settings import PARSERS, RUN_FILE_ONLY, Settings

Progress = Callable[[str], None]
ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for variable in list(os.environ):
        if variable.startswith("GEMMA_DOCTOR_") or variable in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(variable)
    yield


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Report | Callable[[Settings], Report]], list[Settings]]:
    """Let the examination answer with a report; returns the list of the settings that it is called with."""

    def arrange(what: Report | Callable[[Settings], Report]) -> list[Settings]:
        seen: list[Settings] = []

        def fake(settings: Settings, progress: Progress) -> Report:
            seen.append(settings)
            progress("about to run")
            return what(settings) if callable(what) else what

        monkeypatch.setattr(diagnosis, "diagnose", fake)
        return seen

    return arrange


def files() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def start(*arguments: str, **options: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-m", "gemma_doctor", *arguments],
        env=environment,
        text=True,
        stderr=subprocess.PIPE,
        **options,  # type: ignore[call-overload]
    )


# --- exit codes and streams ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("report", [HEALTHY, SICK, CRASHED, LATE, UNABLE, INTERRUPTED], ids=lambda one: one.exit_code)
def test_the_exit_code_is_the_reports(report: Report, answer: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    answer(report)
    assert cli.main(["check", "gemma-3-270m"]) == report.exit_code
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].startswith(f"exit {report.exit_code} ")
    assert err == "about to run\n"


def test_stdout_is_one_json_document_whatever_the_libraries_print(
    answer: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    def noisy(settings: Settings) -> Report:
        print("Some weights were not used")
        return SICK

    answer(noisy)
    assert cli.main(["check", "gemma-3-270m", "--format", "json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["exit_code"] == 1
    assert "Some weights were not used" in err


def test_flags_reach_the_settings(answer: Callable) -> None:
    seen = answer(HEALTHY)
    cli.main(["check", "gemma-2-2b", "--margin", "9", "--select", "mask", "--select", "cache,rope-theta", "-vv"])
    cli.main(["check", "gemma-2-2b", "--strict-skips", "--static", "-q", "--seed", "0", "--fail-on", "never"])
    assert (seen[0].subject, seen[0].margin, seen[0].verbose) == ("gemma-2-2b", 9, 2)
    assert seen[0].select == ("mask", "cache", "rope-theta")
    assert (seen[1].strict_skips, seen[1].static, seen[1].quiet, seen[1].fail_on) == (True, True, True, None)
    assert seen[1].origins["seed"] == "flag"
    assert seen[1].origins["margin"] == "default"


def test_several_prompts_and_conversations_reach_the_settings(answer: Callable) -> None:
    seen = answer(HEALTHY)
    Path("talk.json").write_text('[{"role": "user", "content": "Why?"}]')
    Path("notes.txt").write_text("notes")
    flags = "--prompt a,b --prompt c --prompt-file notes.txt --chat talk.json --offline --revision v1"
    assert cli.main(["check", "org/model", *flags.split()]) == 0
    assert [one.text for one in seen[0].prompts] == ["a,b", "c", "notes", ""]
    assert [one.name for one in seen[0].prompts][2:] == ["prompt file notes.txt", "conversation talk.json"]
    assert (seen[0].offline, seen[0].revision) == (True, "v1")


def test_quiet_keeps_progress_away(answer: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    answer(HEALTHY)
    cli.main(["check", "gemma-3-270m", "--quiet"])
    out, err = capsys.readouterr()
    assert err == ""
    assert len(out.splitlines()) == 2


def test_every_setting_is_a_flag_and_every_flag_a_setting() -> None:
    assert set(inspect.signature(check.check).parameters) == (set(PARSERS) - set(RUN_FILE_ONLY)) | {
        "config",
        "show_config",
    }


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """One line what is wrong, one line what to do, exit code 2, nothing on stdout."""
    assert cli.main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith("gemma-doctor: ")
    assert second.startswith("  ")
    return err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("chekc", "there is no command 'chekc'; did you mean check?"),
        ("check --slect mask", "there is no option --slect; did you mean --select?"),
        ("check --dtype int8", "--dtype is 'int8'; it takes auto, float32, bfloat16 or float16"),
        ("check --margin", "'--margin' requires an argument"),
        ("check a b", "unexpected extra argument"),
        ("check --prompt-file missing.txt", "prompt file missing.txt: cannot be read (No such file or directory)"),
        ("check missing.yaml", "missing.yaml: cannot be read"),
        ("check --chat missing.json", "conversation missing.json: cannot be read (No such file or directory)"),
        ("check --prompt a --prompt a", "given prompt 2: says the same as the given prompt 1"),
        ("heatmap --chat missing.json", "conversation missing.json: cannot be read (No such file or directory)"),
        ("plan org/model --offlin", "there is no option --offlin; did you mean --offline?"),
        ("drill --revison x", "there is no option --revison; did you mean --revision?"),
        ("check --strict-skips", "strict skips need a SUBJECT"),
        ("explain", "missing argument"),
        ("explain past-key-lenght", "there is no check 'past-key-lenght'; did you mean past-key-length?"),
        ("list --json", "there is no option --json"),
    ],
)
def test_a_wrong_command_line(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capsys, *line.split())


def test_no_command_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "Commands:" in capsys.readouterr().out


def test_an_error_of_ours_is_not_taken_for_a_finding(answer: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(settings: Settings) -> Report:
        raise ZeroDivisionError("by \x1b[31mzero")

    answer(broken)
    said = refused_after_progress(capsys, "check", "gemma-3-270m")
    assert "internal error, ZeroDivisionError: by \\x1b[31mzero" in said
    assert "Traceback" not in said
    assert cli.main(["check", "gemma-3-270m", "--debug"]) == 2
    traced = capsys.readouterr().err
    assert "Traceback" in traced and "\x1b" not in traced


def refused_after_progress(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_report_file_is_complete_and_alone(answer: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    answer(SICK)
    mask = os.umask(0o022)
    try:
        assert cli.main(["check", "gemma-3-270m", "--format", "json", "--output", "report.json"]) == 1
    finally:
        os.umask(mask)
    assert json.loads(Path("report.json").read_text())["exit_code"] == 1
    assert files() == ["report.json"]
    assert Path("report.json").stat().st_mode & 0o777 == 0o644
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("path", ["missing/report.txt", "."])
def test_a_place_that_cannot_be_written_is_refused_before_the_run(
    path: str, answer: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = answer(HEALTHY)
    assert f"--output {path}: cannot be written" in refused(capsys, "check", "gemma-3-270m", "--output", path)
    assert seen == []
    assert files() == []


def test_a_folder_without_permission(
    answer: Callable, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    seen = answer(HEALTHY)
    monkeypatch.setattr("tempfile.mkstemp", deny)
    assert "cannot be written (Permission denied)" in refused(capsys, "check", "x", "--output", "report.txt")
    assert seen == []


@pytest.mark.parametrize("end", [DoctorError("no such subject", "name one"), KeyboardInterrupt(), ValueError("x")])
def test_a_run_that_ends_early_leaves_the_old_report_alone(end: BaseException, answer: Callable) -> None:
    def fail(settings: Settings) -> Report:
        assert len(files()) == 2  # the draft lies beside the old report
        raise end

    answer(fail)
    Path("report.txt").write_text("old")
    assert cli.main(["check", "x", "--output", "report.txt"]) in (2, 130)
    assert files() == ["report.txt"]
    assert Path("report.txt").read_text() == "old"


def test_a_link_is_followed_and_a_device_is_not_replaced(answer: Callable) -> None:
    answer(HEALTHY)
    Path("real.txt").write_text("old")
    Path("link.txt").symlink_to("real.txt")
    assert cli.main(["check", "x", "--output", "link.txt"]) == 0
    assert Path("link.txt").is_symlink()
    assert "HEALTHY" in Path("real.txt").read_text()
    os.mkfifo("pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_text()))
    reader.start()
    assert cli.main(["check", "x", "--output", "pipe"]) == 0
    reader.join(10)
    assert "HEALTHY" in read[0]
    assert Path("pipe").is_fifo()


# --- colour ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "environment", "terminal", "colored"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "0"}, True, False),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_who_decides_on_colour(setting: str, environment: dict[str, str], terminal: bool, colored: bool) -> None:
    assert wants_color(setting, environment, terminal) is colored


@pytest.mark.parametrize(("flags", "colored"), [([], False), (["--color", "always"], True)])
def test_colour_in_a_pipe(
    flags: list[str], colored: bool, answer: Callable, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(SICK)
    cli.main(["check", "x", *flags])
    assert ("\x1b[" in capsys.readouterr().out) is colored


# --- signals and pipes -----------------------------------------------------------------------------------------------


def test_the_time_limit_reaches_the_examination(answer: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    def slow(settings: Settings) -> Report:
        try:
            while True:
                with contextlib.suppress(Exception):  # as a pass does with what the subject's own forward raises
                    time.sleep(0.01)
        except TimedOut as late:
            assert str(late) == "timed out after 0.2 s"
            return LATE

    answer(slow)
    assert cli.main(["check", "x", "--timeout", "0.2"]) == 2
    assert "NO FAULT FOUND" in capsys.readouterr().out
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_time_is_over_before_anything_is_known(answer: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    answer(lambda settings: time.sleep(5))
    said = refused_after_progress(capsys, "check", "x", "--timeout", "0.1")
    assert "timed out after 0.1 s, before anything was known" in said


def test_a_time_limit_in_a_thread_is_refused(answer: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    answer(HEALTHY)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(cli.main(["check", "x", "--timeout", "5"])))
    thread.start()
    thread.join(10)
    assert codes == [2]
    assert "--timeout" in capsys.readouterr().err


def test_an_interrupt_before_anything_is_known(answer: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(settings: Settings) -> Report:
        raise KeyboardInterrupt

    answer(interrupt)
    assert cli.main(["check", "x"]) == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert "interrupted" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [["presets"], ["list"], ["explain", "mask-shape"]])
def test_a_reader_that_went_away_is_no_error(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    process = start(*arguments, stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_change_no_exit_code(closed: str) -> None:
    command = f'"{sys.executable}" -m gemma_doctor explain mask-shape {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", command], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")


# --- the other commands ----------------------------------------------------------------------------------------------


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"gemma-doctor {gemma_doctor.__version__}\n"


def test_list_has_every_check_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for one in registry.built_in():
        (line,) = [line for line in lines if line.split(" ")[0] == one.id]
        assert line.split()[1] == one.group
        assert line.endswith(one.title)
        assert ("static" in line.removesuffix(one.title).split()) is one.is_static
    for way in routes.all_routes().values():
        (line,) = [line for line in lines if line.split(" ")[0] == way.id]
        assert way.depth in line
        assert line.endswith(way.condition)


def test_presets_has_every_preset_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["presets"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:] if line and not line[0].isspace()]
    assert names[: len(presets.names())] == list(presets.names())


@pytest.mark.parametrize("one", registry.built_in(), ids=lambda one: one.id)
def test_explain_shows_all_headings_and_fits(one: registry.Check) -> None:
    narrow = explained(one.id, width=80, color=False)
    for heading in HEADINGS:
        assert heading in narrow.splitlines()
    assert max(len(line) for line in narrow.splitlines()) <= 80
    wide = explained(one.id, width=None, color=False)
    assert narrow.split() == wide.split()  # filled anew, and no word lost
    assert "\x1b[1mWhy it matters\x1b[0m" in explained(one.id, width=None, color=True)


@pytest.mark.parametrize("command", ["", *app.COMMANDS])
def test_help_fits_80_columns_and_cuts_no_summary(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "..." not in text.replace("[ARGS]...", "").replace("eager, sdpa ...", "")


def test_a_table_wraps_its_last_column() -> None:
    rows = [("a", "one two three four five six seven eight"), ("long-name", "x")]
    assert table(("id", "title"), rows, None).splitlines()[1] == "a          one two three four five six seven eight"
    wrapped = table(("id", "title"), rows, 35).splitlines()
    assert wrapped[1:3] == ["a          one two three four five", "           six seven eight"]
    below = table(("id", "title"), rows, 26).splitlines()
    assert below[2:5] == ["a", "    one two three four", "    five six seven eight"]


# --- speed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "check --help",
        "list",
        "explain mask-shape",
        "presets",
        "check gemma-3-270m --static",
        "check nonsense",
    ],
)
def test_nothing_heavy_is_imported(line: str) -> None:
    code = (
        "import sys; from gemma_doctor.cli import main; code = main(sys.argv[1:]); "
        "print(code, sorted({'torch', 'transformers'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *line.split()],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    code_word, found = done.stderr.splitlines()[-1].split(" ", 1)
    assert found == "[]"
    assert code_word == ("2" if "nonsense" in line else "0")
    if "--static" in line:
        assert re.search(r"^HEALTHY in all that was looked at, in the published file alone", done.stdout, re.MULTILINE)


def test_what_libraries_quote_cannot_act_on_the_terminal() -> None:
    written = io.StringIO()
    output.Escaped(written).write("warning: \x1b[31mevil\x1b[0m\r 10%\nnext\tline")
    assert written.getvalue() == "warning: \\x1b[31mevil\\x1b[0m\r 10%\nnext\tline"


@pytest.mark.parametrize("command", ["plan", "drill"])
def test_a_command_with_fewer_formats_refuses_the_others(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--format is 'sarif'; it takes text or json here" in refused(capsys, command, "--format", "sarif")


def test_the_format_of_a_run_file_is_meant_for_check(capsys: pytest.CaptureFixture[str]) -> None:
    Path("gemma-doctor.yaml").write_text("subject: gemma-3-1b-it\nformat: json\n", encoding="utf-8")
    assert cli.main(["plan", "--context", "1024", "--memory", "80GB"]) == 0
    assert capsys.readouterr().out.startswith("{")
    Path("gemma-doctor.yaml").write_text("subject: gemma-3-1b-it\nformat: sarif\n", encoding="utf-8")
    assert cli.main(["plan", "--context", "1024", "--memory", "80GB"]) == 0
    assert capsys.readouterr().out.startswith("gemma-3-1b-it: ")
