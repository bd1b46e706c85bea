"""Keys of a configuration and the lines on which they stand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from fake_reports import RIGHT_PADDING, result

from gemma_doctor import config_lines, settings
from gemma_doctor.checks.config.config_drift import config_drift
from gemma_doctor.config_lines import config_file, lines_of, located, shown_path
from gemma_doctor.diagnosis import diagnose
from gemma_doctor.evidence import Arrival
from gemma_doctor.finding import Outcome, Report
from gemma_doctor.presets import load
from gemma_doctor.subject import resolve
from gemma_doctor.testing import config_drift as healthy_drift
from gemma_doctor.testing import run_check

SAMPLES = Path(__file__).parent.parent / "sample_configs" / "faulty"
NESTED = """{
  "model_type": "gemma3",
  "text_config": {
    "sliding_window":512, "rope_parameters":
    {"full_attention": {
        "rope_theta": 1000000.0}}
  }
}
"""


def model(folder: Path, text: str) -> Path:
    (folder / "config.json").write_text(text, encoding="utf-8")
    return folder


def line_of(folder: Path, *keys: str, **flags: object) -> int | None:
    """Line of a finding about these keys, of a model in a folder."""
    found = settings.resolve({"subject": str(folder), "static": True, **flags}, {})
    results = (result("x", "config", Outcome.FAIL, replace(RIGHT_PADDING, keys=keys)),)
    ((finding,),) = (one.findings for one in located(results, resolve(found), found))
    return finding.line


def examined(*arguments: object) -> Report:
    subject, *rest = arguments
    flags = {str(name): True for name in rest}
    return diagnose(settings.resolve({"subject": str(subject), "static": True, **flags}, {}), lambda line: None)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (("model_type",), 2),
        (("text_config.sliding_window",), 4),
        (("text_config.rope_parameters.full_attention.rope_theta",), 6),
        (("text_config.rope_parameters.full_attention.factor",), 5),
        (("text_config.rms_norm_eps",), 3),
        (("rms_norm_eps",), None),
        (("rms_norm_eps", "text_config.sliding_window"), 4),
        ((), None),
    ],
)
def test_the_line_of_a_key_or_of_its_nearest_parent(tmp_path: Path, keys: tuple[str, ...], line: int | None) -> None:
    assert line_of(model(tmp_path, NESTED), *keys) == line


@pytest.mark.parametrize("loader", [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
def test_tabs_are_white_space(loader: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_lines, "_Loader", loader)
    assert line_of(model(tmp_path, NESTED.replace("  ", "\t")), "text_config.sliding_window") == 4


def test_of_a_key_that_stands_twice_the_last_counts(tmp_path: Path) -> None:
    text = '{\n"model_type": "gemma3_text",\n"sliding_window": 1,\n"sliding_window": 2\n}'
    assert line_of(model(tmp_path, text), "sliding_window") == 4


@pytest.mark.parametrize("text", ["{", '{"a": \x07}', "\ufeff{}", '{"a": "\\ud83d\\ude00", "b": 1}', "[" * 5000, ""])
def test_a_file_that_cannot_be_read_so_has_no_lines_and_is_no_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    assert set(lines_of(path).values()) <= {1}


def test_a_file_that_is_gone_has_no_lines(tmp_path: Path) -> None:
    assert lines_of(tmp_path / "config.json") == {}


def test_every_top_key_of_a_published_file_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(load("gemma-3-4b-it"), indent=1), encoding="utf-8")
    written = path.read_text(encoding="utf-8").splitlines()
    lines = lines_of(path)
    assert all(f'"{key[-1]}":' in written[line - 1] for key, line in lines.items())
    assert {key[0] for key in lines} == {*load("gemma-3-4b-it")}


def test_a_key_that_the_run_lays_over_the_file_has_no_line_in_it(tmp_path: Path) -> None:
    model(tmp_path, NESTED)
    run_file = tmp_path / "run.yaml"
    run_file.write_text(f"subject: {tmp_path}\nstatic: true\noverrides:\n  sliding_window: 4\n", encoding="utf-8")
    assert line_of(run_file, "text_config.sliding_window") is None
    assert line_of(run_file, "text_config.rope_parameters") == 4


def test_a_file_is_named_from_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    model(folder, NESTED)
    wanted = settings.resolve({"subject": str(folder), "static": True}, {})
    monkeypatch.chdir(tmp_path / "models")
    assert shown_path(resolve(wanted), wanted) == "mine/config.json"
    monkeypatch.chdir(folder)
    assert shown_path(resolve(wanted), wanted) == "config.json"
    monkeypatch.chdir(Path(__file__).parent)
    assert shown_path(resolve(wanted), wanted) == (folder / "config.json").as_posix()


@pytest.mark.parametrize("name", ["gemma-3-270m", "google/gemma-3-270m"])
def test_what_lies_in_no_file_of_the_user_has_none(name: str) -> None:
    wanted = settings.resolve({"subject": name, "static": True, "offline": True}, {})
    assert config_file(resolve(wanted), wanted) is None


def test_a_wrong_window_points_at_its_line(tmp_path: Path) -> None:
    published = json.dumps({**load("gemma-3-270m"), "sliding_window": 256}, indent=2)
    report = examined(model(tmp_path, published))
    (found,) = (one for one in report.findings if one.check == "sliding-window")
    assert published.splitlines()[(found.line or 0) - 1] == '  "sliding_window": 256,'


@pytest.mark.parametrize(
    ("check", "key", "value"),
    [
        ("sliding-window", "sliding_window", 0),
        ("layer-pattern", "layer_types", ["full_attention"]),
        ("rms-norm-eps", "rms_norm_eps", 0),
        ("rope-theta", "rope_local_base_freq", -1),
        ("rope-coverage", "max_position_embeddings", 200_000),
        (
            "context-length",
            "rope_scaling",
            {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 1024},
        ),
    ],
)
def test_each_check_of_a_published_file_names_the_key_that_is_wrong(
    tmp_path: Path, check: str, key: str, value: object
) -> None:
    published = json.dumps({**load("gemma-3-270m"), key: value}, indent=2)
    report = examined(model(tmp_path, published))
    lines = {one.line for one in report.findings if one.check == check}
    assert lines
    assert all(line and published.splitlines()[line - 1].startswith(f'  "{key}":') for line in lines)


def test_a_value_that_does_not_arrive_is_named_as_written() -> None:
    arrived = (Arrival("text_config.head_dim", 256, 128),)
    (found,) = run_check(config_drift, drift=healthy_drift(arrived=arrived)).findings
    assert found.keys == ("text_config.head_dim",)


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_faulty_sample_points_at_what_it_lays_over(path: Path) -> None:
    report = examined(path)
    written = path.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(written, 1) if line.startswith("overrides:"))
    lines = [one.line for one in report.findings if path.stem.startswith(one.check)]
    assert str(report.subject["config_file"]).endswith(path.name)
    assert lines
    assert all(line is not None and first < line <= len(written) for line in lines)
