"""The JSON Schema of the run file: it is current, takes what the tool takes, and refuses what the tool refuses."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gemma_doctor import run_file
from gemma_doctor.cli import main
from gemma_doctor.cli.run_file_schema import text
from gemma_doctor.errors import DoctorError
from gemma_doctor.registry import built_in
from gemma_doctor.report import schemas
from gemma_doctor.settings import PARSERS, resolve

ROOT = Path(__file__).parent.parent
SAMPLES = sorted(path for path in (ROOT / "sample_configs").rglob("*.yaml") if path.parent.name != "texts")
SCHEMA = schemas.load("run-file")
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)

RIGHT = [
    "seed: 3\nmargin: 8\nfail-on: never\ndevice: cuda:1\nstatic: true\ntimeout: 1.5",
    "select: [mask, rope-theta]\nignore: bos-token,recall\nrequire: [check-of-a-plug-in]",
    "routes: [cached, crop]\ndepth: deep",
    "report: {sarif: a.sarif, html: b.html}",
    "report: [junit=a.xml, json=b.json]",
    "suppress:\n  - {check: padding-side, reason: we pad by hand, title: tokenizer, until: 2027-01-31}",
    "severity: {bos-token: warning, check-of-a-plug-in: error}",
    "thresholds: {window-crossing: {margin: 0.4}, check-of-a-plug-in: {share: 1}}",
    "expect: gemma-3-270m\noverrides: {sliding_window: 256, rope_scaling: null}",
    "expect: {preset: gemma-3-270m, sliding_window: 512}",
    "prompt: [one, two]\nprompt-file: a.txt",
]
WRONG = [
    "sede: 3",
    "seed: -1",
    "max_length: 3",
    "fail-on: fatal",
    "dtype: float8",
    "device: gpu",
    "static: maybe",
    "timeout: 0",
    "report: {pdf: a.pdf}",
    "report: pdf=a.pdf",
    "suppress: [{check: padding-side}]",
    "suppress: [{check: padding-side, reason: x, untill: 2027-01-31}]",
    "suppress: [{check: padding-side, reason: x, until: soon}]",
    "severity: {bos-token: fatal}",
    "thresholds: {window-crossing: {margins: 0.4}}",
    "thresholds: {window-crossing: {margin: -1}}",
    "thresholds: {mask-shape: {margin: 1}}",
    "routes: [cachd]",
    "overrides: 3",
    "prompt: ['']",
]


def content(path: Path) -> Any:
    """A run file as an editor's YAML 1.2 has it: dates are texts."""
    return json.loads(json.dumps(run_file.read(path), default=datetime.date.isoformat))


def written(folder: Path, yaml: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml, encoding="utf-8")
    return path


def test_the_shipped_file_is_current() -> None:
    assert schemas.text("run-file") == text(), (
        "python -m gemma_doctor.cli.run_file_schema > gemma_doctor/report/run-file.schema.json"
    )


def test_it_is_a_schema() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_is_valid(path: Path) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(content(path))] == []


def test_every_setting_is_described() -> None:
    described = {name: one["description"] for name, one in SCHEMA["properties"].items()}
    assert set(described) == {name.replace("_", "-") for name in PARSERS}
    assert [name for name, words in described.items() if not words.endswith(".")] == []


def test_checks_and_thresholds_are_completions() -> None:
    ids = [one.id for one in built_in()]
    assert SCHEMA["definitions"]["check"]["anyOf"][0]["enum"] == ids
    thresholds = SCHEMA["properties"]["thresholds"]["properties"]
    for one in built_in():
        assert set(thresholds[one.id].get("properties", {})) == set(one.thresholds)


@pytest.mark.parametrize("yaml", RIGHT)
def test_what_the_tool_takes_is_valid(tmp_path: Path, yaml: str) -> None:
    path = written(tmp_path, yaml)
    (tmp_path / "a.txt").write_text("a prompt", encoding="utf-8")
    resolve({"config": str(path)}, {})
    assert [error.message for error in VALIDATOR.iter_errors(content(path))] == []


@pytest.mark.parametrize("yaml", WRONG)
def test_what_is_wrong_is_not(tmp_path: Path, yaml: str) -> None:
    assert not VALIDATOR.is_valid(content(written(tmp_path, yaml)))


@pytest.mark.parametrize("yaml", WRONG)
def test_the_tool_refuses_it_as_well(tmp_path: Path, yaml: str) -> None:
    from gemma_doctor.diagnosis import chosen_checks

    with pytest.raises(DoctorError):
        chosen_checks(resolve({"config": str(written(tmp_path, yaml))}, {}))


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_names_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    names = capsys.readouterr().out.split()
    assert {"report", "run-file", "facts", "diff", "drill"} <= set(names)


@pytest.mark.parametrize("name", schemas.names())
def test_the_command_prints_each_as_it_is_shipped(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", name]) == 0
    assert capsys.readouterr().out == schemas.text(name)
    assert json.loads(schemas.text(name))["title"].startswith("gemma-doctor")


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "run-fil"]) == 2
    assert "did you mean run-file?" in capsys.readouterr().err
