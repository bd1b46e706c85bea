"""`gemma-doctor new-check`: what it writes works as it is, and nothing is written over."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from gemma_doctor import check as contracts
from gemma_doctor import cli, evidence, finding, registry
from gemma_doctor.check import EVIDENCE_TYPES, GROUPS, thresholds_of

PAGE = (Path(__file__).parent.parent / "docs/writing-checks.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def files() -> list[str]:
    return sorted(str(path) for path in Path().rglob("*.py"))


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=120, check=False)


def test_it_says_what_was_written_and_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new-check", "my-check"]) == 0
    assert files() == ["checks/mask/my_check.py", "tests/test_my_check.py"]
    assert capsys.readouterr().out.splitlines() == [
        "wrote checks/mask/my_check.py",
        "wrote tests/test_my_check.py",
        "It works as it is. Fill it in, and try it:",
        "  pytest tests/test_my_check.py",
        "  gemma-doctor list --checks-dir checks",
        "  gemma-doctor check --checks-dir checks --select my-check",
    ]


@pytest.mark.parametrize("folder", ["checks", "src/acme_checks", "."])
def test_the_written_test_passes(folder: str) -> None:
    cli.main(["new-check", "my-check", "--dir", folder, "--group", "positions"])
    done = python("pytest", "-q", "tests/test_my_check.py")
    if folder == ".":  # its tests folder is no group, and is passed over
        assert Path("positions/my_check.py").is_file()
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_the_written_test_finds_a_folder_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> None:
    cli.main(["new-check", "my-check", "--dir", str(tmp_path_factory.mktemp("elsewhere"))])
    assert python("pytest", "-q", "tests").returncode == 0


def test_the_written_test_fails_when_the_check_no_longer_looks() -> None:
    cli.main(["new-check", "my-check"])
    written = Path("checks/mask/my_check.py")
    written.write_text(written.read_text().replace("if any(starts):", "if False:"))
    assert python("pytest", "-q", "tests").returncode == 1


def test_what_is_written_is_clean() -> None:
    cli.main(["new-check", "my-check"])
    assert python("ruff", "check", "--isolated", ".").returncode == 0
    assert python("ruff", "format", "--isolated", "--check", ".").returncode == 0


@pytest.mark.parametrize("group", GROUPS)
def test_it_is_a_check_of_its_group(group: str) -> None:
    cli.main(["new-check", "my_check", "--group", group])
    (one,) = (one for one in registry.available(["checks"], plugins=False) if one.source == "checks")
    assert (one.id, one.group) == ("my-check", group)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("My-Check", "'My-Check' is no name for a check"),
        ("2nd", "'2nd' is no name for a check"),
        ("class", "'class' is no name for a check"),
        ("../out", "'../out' is no name for a check"),
        ("mask-shape", "the name 'mask-shape' is taken"),
        ("cache", "the name 'cache' is taken"),
        ("my-check --group msk", "--group: there is no group 'msk'; did you mean mask?"),
    ],
)
def test_a_wrong_name_is_refused(arguments: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new-check", *arguments.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, files()) == ("", [])
    message, hint = err.splitlines()
    assert message == f"gemma-doctor: {reason}"
    assert hint.strip()


def test_a_name_of_the_folder_is_taken_in_every_group(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["new-check", "my-check"])
    assert cli.main(["new-check", "my-check", "--group", "cache"]) == 2
    assert "the name 'my-check' is taken" in capsys.readouterr().err


def test_no_file_is_written_over(capsys: pytest.CaptureFixture[str]) -> None:
    test = Path("tests/test_my_check.py")
    test.parent.mkdir()
    test.write_text("mine")
    assert cli.main(["new-check", "my-check"]) == 2
    assert "is there already, and is left as it is" in capsys.readouterr().err
    assert (files(), test.read_text()) == ([str(test)], "mine")


def test_a_folder_that_holds_other_files_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("setup.py").touch()
    assert cli.main(["new-check", "my-check", "--dir", "."]) == 2
    assert "stands in no group's folder" in capsys.readouterr().err
    assert files() == ["setup.py"]


def test_a_place_that_cannot_be_written_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("checks").touch()
    assert cli.main(["new-check", "my-check"]) == 2
    assert "cannot be written" in capsys.readouterr().err


# --- docs/writing-checks.md ------------------------------------------------------------------------------------------


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)


def run_the_page(examining: bool) -> None:
    """The commands of the page, in order; those that examine a model take seconds."""
    (commands,) = blocks("console")
    for line in commands.splitlines():
        program, *arguments = line.removeprefix("$ ").split()
        if examining or arguments[0] != "check":
            done = python(program.replace("-", "_"), *arguments)
            assert done.returncode == 0, (line, done.stdout, done.stderr)


def test_the_page_can_be_followed() -> None:
    run_the_page(examining=False)
    assert files() == ["checks/positions/first_token.py", "tests/test_first_token.py"]


@pytest.mark.slow
def test_the_page_can_be_followed_to_an_examination() -> None:
    run_the_page(examining=True)


def test_the_page_has_all_evidence() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", PAGE, re.M)
    assert rows == [
        (kind.__name__, needs, (kind.__doc__ or "").strip().splitlines()[0]) for kind, needs in EVIDENCE_TYPES.items()
    ]


def test_the_page_names_all_groups_in_order() -> None:
    assert ", ".join(f"`{group}`" for group in GROUPS) in " ".join(PAGE.split())


def test_the_threshold_of_the_page_is_one() -> None:
    (block,) = (block for block in blocks("python") if "*, tokens_off" in block)
    names = {**vars(contracts), **vars(evidence), **vars(finding)}
    exec(block, names)  # the page's own text
    assert thresholds_of(names["first_token"]) == {"tokens_off": 0}


def test_the_test_of_the_page_is_the_one_that_is_written() -> None:
    cli.main(["new-check", "first-token"])
    (block,) = (block for block in blocks("python") if "def test_" in block)
    written = Path("tests/test_first_token.py").read_text()
    for line in block[block.index("CHECK = ") :].splitlines():
        assert line in written.splitlines()


def test_the_distribution_of_the_page_names_groups() -> None:
    (block,) = blocks("toml")
    points = tomllib.loads(block)["project"]["entry-points"]["gemma_doctor.checks"]
    assert points.keys() <= {*GROUPS}


@pytest.mark.parametrize("name", ["any", "zip", "print", "nothing-there", "annotations"])
def test_a_name_that_a_check_itself_uses_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["new-check", name]) == 2
    assert "is a name that a check itself uses" in capsys.readouterr().err
    assert not Path("checks").exists()


@pytest.mark.parametrize("name", ["trace", "replace", "one-pass", "outcome", "finding"])
def test_a_name_that_the_test_uses_hides_nothing(name: str) -> None:
    assert cli.main(["new-check", name]) == 0
    stem = name.replace("-", "_")
    names: dict[str, object] = {"__file__": str(Path("tests").resolve() / f"test_{stem}.py")}
    exec(Path(f"tests/test_{stem}.py").read_text(encoding="utf-8"), names)  # the file that was written
    for function in [one for key, one in names.items() if key.startswith("test_")]:
        function()  # type: ignore[operator]
