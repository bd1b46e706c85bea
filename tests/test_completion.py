"""What shells complete, asked in the way in which each of them asks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gemma_doctor import cli, registry
from gemma_doctor.cli import completion

ROOT = Path(__file__).parent.parent
ASKING = "_GEMMA_DOCTOR_COMPLETE"


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """What bash is offered for the last word of a line."""

    def ask(line: str) -> list[str]:
        monkeypatch.setenv(ASKING, "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        assert cli.main([]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out.split()

    return ask


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("gemma-doctor dri", ["drill"]),
        ("gemma-doctor explain all-m", ["all-masked-rows"]),
        ("gemma-doctor check --select mask-sh", ["mask-shape"]),
        ("gemma-doctor check --ignore toke", ["tokens", "tokenizer-integrity"]),
        ("gemma-doctor check --require positions,mask-sh", ["positions,mask-shape"]),
        ("gemma-doctor check --routes cached,sec", ["cached,second-turn"]),
        ("gemma-doctor drill --faults window-halved,right-p", ["window-halved,right-padding"]),
        ("gemma-doctor check gemma-3-1b-", ["gemma-3-1b-it", "gemma-3-1b-pt"]),
        ("gemma-doctor check --expect shield", ["shieldgemma-2b"]),
        ("gemma-doctor check --format s", ["sarif"]),
        ("gemma-doctor check --depth ", ["quick", "default", "deep"]),
        ("gemma-doctor check --device cu", ["cuda"]),
        ("gemma-doctor new-check x --group nu", ["numerics"]),
        ("gemma-doctor check --strict", ["--strict-skips"]),
        ("gemma-doctor check ./here", []),
        ("gemma-doctor check --output re", []),
    ],
)
def test_a_word_is_completed(line: str, offered: list[str], complete) -> None:
    assert complete(line) == offered


def test_every_check_is_offered(complete) -> None:
    assert complete("gemma-doctor explain ") == [one.id for one in registry.available()]


def test_checks_of_a_folder_on_the_line_are_offered(complete, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine/mask").mkdir(parents=True)
    (tmp_path / "mine/mask/my_check.py").write_text("raise SystemExit('it is not imported')")
    assert complete("gemma-doctor explain --checks-dir mine my-") == ["my-check"]


def test_what_goes_wrong_offers_nothing(complete) -> None:
    assert complete("gemma-doctor explain --checks-dir not-there my-") == []


def test_only_plain_words_are_offered(monkeypatch: pytest.MonkeyPatch, complete) -> None:
    monkeypatch.setitem(completion._KNOWN, "x", lambda context: ["$(touch x)", "`x`", "a b", "plain"])
    offered = completion.completer("x")
    assert offered is not None
    assert offered(None, "") == ["plain"]  # type: ignore[arg-type]


def test_zsh_is_answered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(ASKING, "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "gemma-doctor explain mask-sh")
    assert cli.main([]) == 0
    assert capsys.readouterr().out == "_arguments '*: :((\"mask-shape\"))'\n"


def test_fish_is_answered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(ASKING, "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "gemma-doctor explain mask-sh")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    assert cli.main([]) == 0
    assert capsys.readouterr().out == "mask-shape\n"


def test_an_unknown_shell_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ASKING, "complete_other")
    assert cli.main([]) == 2


def test_it_imports_no_check_and_nothing_heavy() -> None:
    code = (
        "import sys; from gemma_doctor import cli; assert cli.main([]) == 0;"
        "print(sorted(name for name in sys.modules if name in ('torch', 'transformers', 'matplotlib')"
        "      or name.startswith('gemma_doctor.checks.mask')))"
    )
    asked = {ASKING: "complete_bash", "COMP_WORDS": "gemma-doctor explain mask-sh", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.splitlines() == ["mask-shape", "[]"]


def entry_point(folder: Path) -> str:
    """A PATH on which the program is, whether or not its scripts are installed."""
    program = folder / "gemma-doctor"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m gemma_doctor "$@"\n')
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_a_real_bash_completes(tmp_path: Path) -> None:
    script = """
    eval "$(_GEMMA_DOCTOR_COMPLETE=source_bash gemma-doctor)"
    complete -p gemma-doctor
    COMP_WORDS=(gemma-doctor check --select mask,vis) COMP_CWORD=3
    _gemma_doctor_completion gemma-doctor
    echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**os.environ, "PATH": entry_point(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    set_up, offered = done.stdout.splitlines()
    assert re.fullmatch(r"complete -o default -F \w+ gemma-doctor", set_up)
    assert offered == "mask,visible-keys"


def test_help_names_both_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    assert {"--install-completion", "--show-completion"} <= {*capsys.readouterr().out.split()}
