"""`check --figures DIR`: a picture for each finding with cells, named in the report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_reports import EARLY_DROP, HEALTHY, RIGHT_PADDING, SHIFT, SICK, result, with_results

from gemma_doctor import cli, diagnosis
from gemma_doctor.errors import DoctorError
from gemma_doctor.finding import Cells, Outcome, Report

CELLS = Cells("layer 4, pass 'prompt 2W', step 0", 7, 0, ("########.", ".########"), ("########.", "#########"))
DRAWN = with_results(
    SICK,
    result("past-key-length", "cache", Outcome.FAIL, *[replace(EARLY_DROP, cells=CELLS)] * 2, said="97 steps"),
    result("padding-side", "tokens", Outcome.FAIL, replace(RIGHT_PADDING, cells=CELLS), said="3 rows"),
    result("position-ids", "positions", Outcome.PASS, replace(SHIFT, cells=CELLS), said="97 steps"),
)
PICTURES = ["padding-side-1.png", "past-key-length-1.png", "past-key-length-2.png"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def examine(monkeypatch: pytest.MonkeyPatch, report: Report, *flags: str) -> int:
    monkeypatch.setattr(diagnosis, "diagnose", lambda settings, progress: report)
    return cli.main(["check", "gemma-3-270m", *flags])


def names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def test_each_error_and_warning_with_cells_has_a_picture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert examine(monkeypatch, DRAWN, "--figures", "new/figures") == 1
    assert names("new/figures") == PICTURES
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in Path("new/figures").iterdir())
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines() if "figure " in line] == [
        ["figure", str(Path("new/figures") / name)] for name in (*PICTURES[1:], PICTURES[0])
    ]


def test_json_names_the_file_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert examine(monkeypatch, DRAWN, "--figures", "figures", "--format", "json") == 1
    document = json.loads(capsys.readouterr().out)
    named = [finding["figure"] for one in document["results"] for finding in one["findings"] if finding["figure"]]
    assert sorted(named) == names("figures") == PICTURES


def test_older_pictures_are_replaced_and_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("figures").mkdir()
    for name in ("padding-side-1.png", "notes.txt"):
        Path("figures", name).write_text("old")
    assert examine(monkeypatch, DRAWN, "--figures", "figures") == 1
    assert names("figures") == sorted([*PICTURES, "notes.txt"])
    assert Path("figures/padding-side-1.png").read_bytes().startswith(b"\x89PNG")
    assert Path("figures/notes.txt").read_text() == "old"


def test_without_cells_there_is_no_picture(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert examine(monkeypatch, HEALTHY, "--figures", "figures") == 0
    assert names("figures") == []
    assert examine(monkeypatch, DRAWN) == 1
    assert "figure" not in capsys.readouterr().out


@pytest.mark.parametrize(("folder", "reason"), [("taken", "is a file"), ("taken/below", "Not a directory")])
def test_no_folder_is_refused_before_the_run(
    folder: str, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("taken").write_text("a file")
    monkeypatch.setattr(diagnosis, "diagnose", lambda settings, progress: pytest.fail("it ran"))
    assert cli.main(["check", "gemma-3-270m", "--figures", folder]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"--figures {folder}: cannot be written to ({reason})" in err


def test_a_picture_that_cannot_be_written_costs_no_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(report: Report, folder: str) -> Report:
        raise DoctorError("--figures figures: cannot be written (No space left on device)", "make room")

    monkeypatch.setattr("gemma_doctor.cli.check.drawn", full)
    assert examine(monkeypatch, DRAWN, "--figures", "figures") == 2
    out, err = capsys.readouterr()
    assert "CAUSE  past-key-length" in out
    assert "No space left" in err
