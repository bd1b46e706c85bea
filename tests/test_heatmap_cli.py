"""`gemma-doctor heatmap` from the command line: flags, destinations, exit codes. The charts are made by hand."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_charts import chart, window_ignored

from gemma_doctor import cli
from gemma_doctor import heatmap as heatmap_module
from gemma_doctor.charts import FORMATS
from gemma_doctor.charts.chart import Chart
from gemma_doctor.view import View


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command asks for; it gets the chart under "chart"."""
    asked: dict[str, Any] = {"chart": chart(30)}

    def made(settings: Any, view: View, progress: Callable[[str], None]) -> Chart:
        asked.update(settings=settings, view=view)
        if isinstance(asked["chart"], BaseException):
            raise asked["chart"]
        made: Chart = asked["chart"]
        return made

    monkeypatch.setattr(heatmap_module, "heatmap", made)
    return asked


def test_flags_reach_the_view(shown: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    line = "gemma-3-1b-it --pos 990:1010 --layers 0,5 --heads max --rows-at prefill --scale linear --pads 3 --seed 7"
    assert cli.main(["heatmap", *line.split()]) == 0
    assert shown["view"] == View(pos="990:1010", layers="0,5", heads="max", rows_at="prefill", scale="linear", pads=3)
    assert (shown["settings"].subject, shown["settings"].seed) == ("gemma-3-1b-it", 7)
    assert "gemma-3-270m: what token" in capsys.readouterr().out


def test_a_conversation_and_the_subject_flags_reach_the_settings(shown: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "talk.yaml").write_text("- {role: user, content: Why}")
    assert (
        cli.main(["heatmap", "org/model", "--chat", str(tmp_path / "talk.yaml"), "--offline", "--revision", "v1"]) == 0
    )
    settings = shown["settings"]
    assert [one.messages[0].content for one in settings.prompts] == ["Why"]
    assert (settings.offline, settings.revision) == (True, "v1")


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_is_written_and_its_path_printed(
    shown: dict[str, Any], form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"chart.{form.upper()}"
    assert cli.main(["heatmap", "--out", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert path.stat().st_size > 100
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_nothing_is_overwritten_unless_asked(
    shown: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "chart.json"
    path.write_text("mine")
    assert cli.main(["heatmap", "--out", str(path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert "view" not in shown  # refused before anything ran
    assert cli.main(["heatmap", "--out", str(path), "--force"]) == 0
    assert json.loads(path.read_text())["kind"] == "attention"


@pytest.mark.parametrize("name", ["chart", "chart.jpg", "missing/chart.png", "."])
def test_places_that_cannot_be_written(
    shown: dict[str, Any], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["heatmap", "--out", f"{tmp_path}/{name}"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 2
    assert "view" not in shown


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_to_itself_is_no_path(shown: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    assert cli.main(["heatmap", "--out", str(loop), "--force"]) == 2
    assert "internal error" not in capsys.readouterr().err


def test_what_is_wrong_makes_exit_code_1(
    shown: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown["chart"] = window_ignored(chart(30, window=8), 1)
    assert cli.main(["heatmap"]) == 1
    assert "WRONG" in capsys.readouterr().out
    assert cli.main(["heatmap", "--out", str(tmp_path / "x.png")]) == 1
    said = capsys.readouterr()
    assert said.out == f"{tmp_path / 'x.png'}\n"
    assert said.err.startswith("WRONG  layer 1")


def test_interrupted(shown: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown["chart"] = KeyboardInterrupt()
    assert cli.main(["heatmap", "--out", str(tmp_path / "x.png")]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags", ["--kind atention", "--pads -1", "--scale lin", "--seed x", "--layer 0"])
def test_flags_that_are_none(shown: dict[str, Any], flags: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["heatmap", *flags.split()]) == 2
    assert "check --help" not in capsys.readouterr().err
    assert "view" not in shown


@pytest.mark.parametrize(("encoding", "blocks"), [("utf-8", True), ("ascii", False), ("latin-1", False)])
def test_blocks_only_where_the_stream_has_them(
    shown: dict[str, Any], encoding: str, blocks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.txt"
    with path.open("w", encoding=encoding) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert cli.main(["heatmap", "--color", "always"]) == 0
    text = path.read_text(encoding=encoding)
    assert not re.search(r"\\u258[2-8]", text)
    assert any(block in text for block in "▂▃▄▅▆▇█") is blocks
