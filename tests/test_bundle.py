"""`gemma-doctor bundle`: what is in it, that nothing private is, and that it is told what came of the script."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from fake_reports import HEALTHY, SICK, result, with_results

from gemma_doctor import cli, diagnosis, presets
from gemma_doctor.bundle import Keep, to_examine, zipped
from gemma_doctor.finding import Cells, Outcome, Report, Suppressed
from gemma_doctor.reproduction import trial
from gemma_doctor.settings import resolve

MARKERS = (b"marker", b"secretproject", b"secret-project", b"vault7", b"someone")
SAID = "transformers 0\nREPRODUCED: /home/someone/secret-project/x said hf_markermarkermarker"
CELLS = Cells("layer 4, pass 'prompt 2W'", 7, 0, ("########.", ".########"), ("########.", "#########"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose every name is a marker; no script is run."""
    home = tmp_path / "someone"
    folder = home / "secret-project" / "my marker"
    folder.mkdir(parents=True)
    config = {**presets.load("gemma-3-270m"), "_name_or_path": str(folder), "marker_key": "marker"}
    folder.joinpath("config.json").write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "HOME": str(home),
        "USER": "someone",
        "HOSTNAME": "vault7",
        "HF_TOKEN": "marker-of-a-token",
        "SOME_API_KEY": "markerkey",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(trial, "tried", lambda text, folder: trial.Trial(1, SAID))


def hostile(report: Report) -> Report:
    """The report with a marker in every place that holds somebody's text."""
    private = "/home/someone/secret-project/f.py by someone@vault7 with marker-of-a-token, '/srv/a marker/b', markerkey"
    findings = [replace(one, observed=private, expected=private, do=private, cells=CELLS) for one in report.findings]
    failed = result(findings[0].check, "cache", Outcome.FAIL, *findings[:1], said=private)
    return with_results(
        report,
        failed,
        subject={**report.subject, "name": "/home/someone/secret-project/x", "subject_source": "run file marker.yaml"},
        remarks=(private,),
        suppressed=(Suppressed(findings[0], "marker: our launch", "run file"),),
        passes={**report.passes, "prompt_from": private},
    )


def bundled(monkeypatch: pytest.MonkeyPatch, report: Report, *flags: str) -> dict[str, bytes]:
    monkeypatch.setattr(diagnosis, "diagnose", lambda settings, progress: report)
    name = str(Path.home() / "secret-project" / "my marker")
    assert cli.main(["bundle", name, "-o", "b.zip", "-q", *flags]) == 0
    with zipfile.ZipFile("b.zip") as archive:
        return {one: archive.read(one) for one in archive.namelist()}


def test_it_holds_what_a_bug_report_needs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    content = bundled(monkeypatch, hostile(SICK))
    pictures = [name for name in content if name.startswith("figures/")]
    assert [name for name in content if name not in pictures] == [
        "README.md", "report.txt", "report.json", "environment.json", "config.json", "reproduce.py",
    ]  # fmt: skip
    assert pictures
    assert all(content[name].startswith(b"\x89PNG") for name in pictures)
    assert capsys.readouterr().out.splitlines()[1] == "  README.md"


def test_no_byte_of_it_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    content = bundled(monkeypatch, hostile(SICK))
    for name, data in content.items():
        assert not [marker for marker in MARKERS if marker in data.lower()], (name, data)


def test_paths_stay_if_asked_for_and_secrets_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    content = bundled(monkeypatch, hostile(SICK), "--with-paths")
    assert b"secret-project" in content["report.txt"]
    assert b"marker-of-a-token" not in b"".join(content.values())


def test_json_is_as_described(monkeypatch: pytest.MonkeyPatch) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    from gemma_doctor.report.json import schema

    document = json.loads(bundled(monkeypatch, hostile(SICK))["report.json"])
    jsonschema.validate(document, schema())
    assert document["subject"]["name"] == "a folder"
    assert document["suppressed"][0]["reason"] == "<left out>"


def test_the_first_page_says_what_the_script_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    page = bundled(monkeypatch, hostile(SICK))["README.md"].decode()
    assert "it reproduced the cause" in page
    assert "REPRODUCED: <path> said <secret>" in page


def test_a_script_that_did_not_reproduce_it_is_not_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "tried", lambda text, folder: trial.Trial(0, "not reproduced in transformers 0"))
    page = bundled(monkeypatch, SICK)["README.md"].decode()
    assert "it did NOT reproduce the cause" in page


def test_a_healthy_subject_has_a_bundle_without_script(monkeypatch: pytest.MonkeyPatch) -> None:
    content = bundled(monkeypatch, HEALTHY)
    assert "reproduce.py" not in content
    assert "There is no script" in content["README.md"].decode()


def test_a_prompt_is_never_run_unless_asked_for() -> None:
    asked = resolve({"subject": "gemma-3-270m", "prompt": ["marker " * 5]}, {})
    assert "marker" not in repr(to_examine(asked, Keep()).prompts)
    assert "marker" in repr(to_examine(asked, Keep(prompts=True)).prompts)


def test_the_name_of_a_prompt_file_stays_out_even_with_its_text() -> None:
    Path("marker.txt").write_text("one two", encoding="utf-8")
    asked = resolve({"subject": "gemma-3-270m", "prompt_file": ["marker.txt"]}, {})
    (prompt,) = to_examine(asked, Keep(prompts=True)).prompts
    assert (prompt.name, prompt.text) == ("prompt file 1", "one two")


def test_markdown_of_a_subject_stays_in_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = replace(SICK.causes[0], title="```\n# hello [x](http://x) <script>", follows_from="")
    report = with_results(SICK, result(odd.check, "cache", Outcome.FAIL, odd, said="x"))
    page = bundled(monkeypatch, report)["README.md"].decode()
    assert "\n# hello" not in page
    assert "````text" in page


def test_what_is_there_is_not_overwritten(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Path("b.zip").write_bytes(b"old")
    assert cli.main(["bundle", "gemma-3-270m", "-o", "b.zip"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert Path("b.zip").read_bytes() == b"old"
    assert bundled(monkeypatch, HEALTHY, "--force")


def test_the_same_content_gives_the_same_bytes() -> None:
    content = {"a": b"1", "b/c": b"2"}
    assert zipped(content) == zipped(dict(content))
    assert [one.date_time for one in zipfile.ZipFile(io.BytesIO(zipped(content))).infolist()] == [
        (1980, 1, 1, 0, 0, 0)
    ] * 2
