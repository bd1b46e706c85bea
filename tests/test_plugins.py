"""Checks of others: a distribution that is really installed, folders, and what goes wrong with both."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gemma_doctor import cli, registry
from gemma_doctor.check import GROUPS
from gemma_doctor.cli.drill import _built_in_only
from gemma_doctor.documentation import HEADINGS
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import Config
from gemma_doctor.examine import run_check
from gemma_doctor.finding import Outcome
from gemma_doctor.plugins import FOLDER_PACKAGE
from gemma_doctor.settings import Settings
from gemma_doctor.testing import config, load_check

ROOT = Path(__file__).parent.parent
DOCUMENTED = '"""A check.\n\n' + "\n    ...\n\n".join(HEADINGS) + '\n    ...\n"""\n'
IMPORTS = """
from gemma_doctor.check import check
from gemma_doctor.evidence import Config
from gemma_doctor.finding import Examined
"""
CHECK = '''
@check()
def {name}(config: Config):
    """Looks at the file."""
    {body}
'''
YIELDS = 'yield Examined(1, "looked")'


def source(name: str, body: str = YIELDS) -> str:
    return DOCUMENTED + IMPORTS + CHECK.format(name=name, body=body)


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test imports is forgotten after it: the next one may use the same name."""
    monkeypatch.chdir(tmp_path)
    before = {*sys.modules}
    yield
    for name in {*sys.modules} - before:
        if name.startswith(("acme", FOLDER_PACKAGE)):
            del sys.modules[name]


def folder(name: str, **files: str) -> str:
    """A folder of checks; keys are group__file."""
    for key, text in files.items():
        path = Path(name, *key.split("__", 1)).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return name


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Make a distribution `acme` of the given files, as an installer leaves it, with one entry point."""

    def install(entry_point: str = "mask = acme.mask", **files: str) -> None:
        place = tmp_path / "site"
        (place / "acme-1.0.dist-info").mkdir(parents=True)
        (place / "acme-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
        (place / "acme-1.0.dist-info/entry_points.txt").write_text(f"[gemma_doctor.checks]\n{entry_point}\n")
        folder(str(place / "acme"), **files)
        monkeypatch.syspath_prepend(place)

    return install


# --- a distribution that is really installed -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a process in which the distribution of this folder is installed."""
    place = tmp_path_factory.mktemp("installed")
    copied = shutil.copytree(ROOT / "tests/plugin_distribution", place / "source")  # a build leaves files beside it
    pip = "-m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --target"
    subprocess.run([sys.executable, *pip.split(), str(place / "site"), str(copied)], check=True, timeout=120)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(place / "site"), str(ROOT)])}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "gemma_doctor", *arguments]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_an_installed_check_is_listed_with_its_distribution(environment: dict[str, str]) -> None:
    done = run(environment, "list")
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("window-of-two"))
    assert line.split("  ")[0] == "window-of-two"
    assert "gemma-doctor-example-checks 0.3" in line
    assert "static" in line


def test_an_installed_check_is_explained(environment: dict[str, str]) -> None:
    first = run(environment, "explain", "window-of-two").stdout.splitlines()[0]
    assert "of gemma-doctor-example-checks 0.3" in first


def test_an_installed_check_runs_on_a_file(environment: dict[str, str]) -> None:
    done = run(environment, "check", "gemma-3-270m", "--static", "--select", "window-of-two")
    assert (done.returncode, done.stderr) == (0, "")
    assert "window-of-two: a window of 512 tokens" in done.stdout


@pytest.mark.slow
def test_an_installed_check_runs_on_a_model(environment: dict[str, str]) -> None:
    done = run(environment, "check", "gemma-3-270m", "--weights", "skeleton", "--select", "window-of-two")
    assert done.returncode == 0
    assert "window-of-two: a window of 512 tokens" in done.stdout


def test_no_plugins_leaves_an_installed_check_out(environment: dict[str, str]) -> None:
    listed = run(environment, "list", "--no-plugins")
    assert "window-of-two" not in listed.stdout
    assert "source" not in listed.stdout.splitlines()[0]
    refused = run(environment, "check", "gemma-3-270m", "--static", "--no-plugins", "--select", "window-of-two")
    assert refused.returncode == 2


# --- what goes wrong with distributions ------------------------------------------------------------------------------

TWO = source("my_check") + CHECK.format(name="other", body=YIELDS)
BROKEN = {
    "is not there": ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
    "import error": ("raise ImportError('no such library')", "ImportError: no such library"),
    "ends the process": ("raise SystemExit(0)", "SystemExit: 0"),
    "no Exception": ("class Odd(BaseException): ...\nraise Odd('odd')", "Odd: odd"),
    "syntax": ("def (", "SyntaxError: "),
    "two checks": (TWO, "it has 2 functions marked with @check; it needs one"),
    "no check": (DOCUMENTED, "it has 0 functions marked with @check; it needs one"),
    "another name": (source("other"), "the check must be named my_check like its file, not other"),
    "no heading": (source("my_check").replace("How to fix", "Fix"), "its docstring lacks How to fix"),
    "no evidence": (source("my_check").replace("config: Config", ""), "it takes no evidence"),
    "no type": (source("my_check").replace("config: Config", "config: Config, x"), "parameter 'x' has no type"),
    "other evidence": (source("my_check").replace("config: Config", "config: int"), "is no evidence type"),
    "no title": (source("my_check").replace('    """Looks at the file."""', ""), "has no docstring"),
    "no such type": (source("my_check").replace("config: Config", "config: 'Conf'"), "name 'Conf' is not defined"),
    "gate": (source("my_check").replace("@check()", "@check(decides_before='msk')"), "'msk' is no group"),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("command", ["list", "explain mask-shape", "check gemma-3-270m --static"])
def test_a_broken_plugin_is_two_lines(what: str, command: str, installed, capsys: pytest.CaptureFixture[str]) -> None:
    text, reason = BROKEN[what]
    installed(mask__my_check=text)
    assert cli.main(command.split()) == 2
    out, err = capsys.readouterr()
    message, hint = err.splitlines()
    assert out == ""
    assert message.startswith("gemma-doctor: acme 1.0: acme.mask.my_check: ")
    assert reason in message
    assert hint == "  mend or uninstall acme; --no-plugins leaves its checks out"
    assert cli.main([*command.split(), "--no-plugins"]) == 0


@pytest.mark.parametrize(
    ("entry_point", "reason"),
    [
        ("msk = acme.mask", "there is no group 'msk'; did you mean mask?"),
        ("mask = acme.other", "No module named 'acme.other'"),
        ("mask = acme.empty", "there is no check in it"),
    ],
)
def test_a_wrong_entry_point_is_named(entry_point: str, reason: str, installed, capsys) -> None:
    installed(entry_point, mask__my_check=source("my_check"), empty____init__="")
    assert cli.main(["list"]) == 2
    assert reason in capsys.readouterr().err.splitlines()[0]


def test_an_entry_point_may_name_a_single_check(installed) -> None:
    installed("cache = acme.anywhere.my_check", anywhere__my_check=source("my_check"))
    (found,) = (one for one in registry.available() if one.id == "my-check")
    assert (found.group, found.source) == ("cache", "acme 1.0")


def test_an_interrupt_while_a_plugin_is_imported_is_one(installed) -> None:
    installed(mask__my_check="raise KeyboardInterrupt")
    assert cli.main(["list"]) == 130


@pytest.mark.parametrize(("name", "taken_by"), [("mask_shape", "gemma-doctor"), ("cache", "a group")])
def test_an_id_that_is_taken_is_refused(name: str, taken_by: str, installed) -> None:
    installed(**{f"mask__{name}": source(name)})
    with pytest.raises(DoctorError, match=rf"the id '.*' is taken \({taken_by}\)"):
        registry.available()


def test_two_plugins_cannot_have_the_same_id(installed) -> None:
    installed(mask__my_check=source("my_check"))
    with pytest.raises(DoctorError, match=r"'my-check' is taken \(checks\)"):
        registry.available([folder("checks", cache__my_check=source("my_check"))])


def test_what_a_plugin_prints_is_not_in_the_report(installed, capsys: pytest.CaptureFixture[str]) -> None:
    installed(mask__my_check=source("my_check") + "print('hello')\n")
    assert cli.main(["list"]) == 0
    out, err = capsys.readouterr()
    assert "hello" not in out
    assert err == "hello\n"


def test_what_a_plugin_says_cannot_act_on_the_terminal(installed, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = source("my_check").replace("Looks at", "\x1b[2J\u202elooks").replace("A check.", "\x1b]0;x\x07A check.")
    installed(mask__my_check=hostile)
    assert cli.main(["list"]) == cli.main(["explain", "my-check"]) == 0
    assert not {"\x1b", "\u202e", "\x07"} & {*capsys.readouterr().out}


# --- folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_of_checks_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--checks-dir", folder("mine", mask__my_check=source("my_check"))]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("my-check "))
    assert line.split()[:3] == ["my-check", "mask", "mine"]


def test_no_plugins_keeps_folders() -> None:
    found = registry.available([folder("mine", mask__my_check=source("my_check"))], plugins=False)
    assert "my-check" in {one.id for one in found}


def test_checks_stand_in_the_order_of_the_reading_path() -> None:
    mine = folder("mine", generation__late=source("late"), config__early=source("early"))
    found = registry.available([mine])
    places = [GROUPS.index(one.group) for one in found]
    assert places == sorted(places)
    assert [one for one in found if one.source == "gemma-doctor"] == [*registry.built_in()]


def test_files_with_an_underscore_are_shared_by_their_folder_alone() -> None:
    def shared(name: str) -> str:
        return source(name, body="from ._shared import WORD\n    yield Examined(1, WORD)")

    first = folder("one", mask__a=shared("a"), mask___shared="WORD = 'first'")
    other = folder("two", mask__b=shared("b"), mask___shared="WORD = 'second'")
    said = {one.id: run_on_config(one) for one in registry.available([first, other]) if one.source in ("one", "two")}
    assert said == {"a": "first", "b": "second"}


def run_on_config(one: registry.Check) -> str:
    result = run_check(one, Given())
    assert result.examined is not None
    return result.examined.sentence


class Given:
    """A source of evidence: one configuration."""

    def get(self, kind: type, of: str = "") -> Config:
        return config()

    def close(self, reason: str) -> None: ...

    def reference_of(self, route: str) -> None: ...


def test_a_folder_leaves_no_trace_but_a_package_of_our_own() -> None:
    path, before = [*sys.path], {*sys.modules}
    registry.available([folder("mine", mask__my_check=source("my_check"))])
    assert sys.path == path
    assert all(name.startswith(FOLDER_PACKAGE) for name in {*sys.modules} - before)


def test_a_folder_that_is_named_twice_is_read_once() -> None:
    mine = folder("mine", mask__my_check=source("my_check"))
    assert [one.id for one in registry.available([mine, f"./{mine}/"])].count("my-check") == 1


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "there is no such folder"),
        ({"mask___shared": ""}, "there is no check in it"),
        ({"stray": ""}, "mine/stray.py: stands in no group's folder"),
        ({"msk__my_check": ""}, "mine/msk: there is no group 'msk'; did you mean mask?"),
        ({"mask__my-check": ""}, "mine/mask/my-check.py: is no name of a Python module"),
        ({"mask__my_check": "raise OSError('gone')"}, "mine/mask/my_check.py: OSError: gone"),
    ],
)
def test_a_folder_that_holds_no_checks_is_refused(files: dict[str, str], reason: str) -> None:
    with pytest.raises(DoctorError) as refused:
        registry.available([folder("mine", **files)])
    assert reason in refused.value.message
    assert refused.value.hint


# --- while they run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "said"), [("1 / 0", "ZeroDivisionError: division by zero"), ("raise SystemExit(0)", "SystemExit: 0")]
)
def test_a_plugin_that_crashes_is_an_error_that_names_it(body: str, said: str) -> None:
    mine = folder("mine", mask__my_check=source("my_check", body=f"{body}\n    {YIELDS}"))
    (one,) = (one for one in registry.available([mine]) if one.id == "my-check")
    result = run_check(one, Given())
    assert result.outcome is Outcome.ERROR
    assert result.reason == f"the check (mine) crashed: {said}"


def test_a_plugin_that_ends_the_process_cannot_make_a_gate_green(installed) -> None:
    installed(mask__my_check=source("my_check", body=f"raise SystemExit(0)\n    {YIELDS}"))
    assert cli.main(["check", "gemma-3-270m", "--static"]) == 2


def test_a_drill_knows_built_in_checks_only() -> None:
    mine = folder("mine", mask__my_check=source("my_check"))
    own = _built_in_only(Settings(checks_dir=(mine,), select=("mask", "my-check"), thresholds={"my-check": {}}))
    assert (own.checks_dir, own.no_plugins, own.select, own.thresholds) == ((), True, ("mask",), {})


def test_a_broken_plugin_does_not_stop_a_drill(installed) -> None:
    installed("msk = acme.mask", mask__my_check="")
    assert _built_in_only(Settings(select=("mask",))).no_plugins


def test_a_drill_of_plugins_alone_is_refused() -> None:
    mine = folder("mine", mask__my_check=source("my_check"))
    with pytest.raises(DoctorError, match="none of these checks is built in"):
        _built_in_only(Settings(checks_dir=(mine,), select=("my-check",)))


def test_load_check_suggests() -> None:
    with pytest.raises(DoctorError, match="did you mean my-check"):
        load_check(folder("mine", mask__my_check=source("my_check")), "my-chek")


def test_an_exception_that_cannot_say_what_it_is_names_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mask").mkdir()
    body = "class Odd(Exception):\n    def __str__(self):\n        raise ValueError\n\n\nraise Odd\n"
    (tmp_path / "mask" / "odd_one.py").write_text(body, encoding="utf-8")
    assert cli.main(["list", "--checks-dir", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "odd_one.py" in said and "Odd" in said
    assert "internal error" not in said
