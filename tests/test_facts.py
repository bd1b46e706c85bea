"""Facts about layers: what the published file says, what transformers builds of it, and that the two agree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gemma_doctor import presets
from gemma_doctor.cli import main
from gemma_doctor.difference.of_facts import difference
from gemma_doctor.errors import DoctorError
from gemma_doctor.layer_facts import layer_facts
from gemma_doctor.report import facts as report
from gemma_doctor.report import schemas
from gemma_doctor.report.json import plain
from gemma_doctor.settings import resolve
from gemma_doctor.subject import not_a_decoder

SCHEMA = schemas.load("facts")
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
DECODERS = [name for name in presets.names() if not not_a_decoder(presets.load(name))]


def facts(subject: str, source: str = "published") -> dict[str, Any]:
    found: dict[str, Any] = plain(layer_facts(resolve({"subject": subject}, {}), source))
    return found


def of(folder: Path, **mapping: Any) -> str:
    (folder / "config.json").write_text(json.dumps(presets.load("gemma-3-270m") | mapping), encoding="utf-8")
    return str(folder)


def complete(name: str) -> bool:
    """The file alone is enough."""
    try:
        facts(name)
    except DoctorError:
        return False
    return True


COMPLETE = [name for name in DECODERS if complete(name)]


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_gemma_3_270m_as_published() -> None:
    found = facts("gemma-3-270m")
    assert found["source"] == "published"
    assert found["model"] | {"max_positions": 32_768, "norm_eps": 1e-6, "bos_token_id": 2} == found["model"]
    sliding, full = found["layers"][0], found["layers"][5]
    assert sliding == {
        "index": 0,
        "kind": "sliding_attention",
        "window": 512,
        "rope_theta": 10_000.0,
        "rope_type": "default",
        "rope_parameters": {},
        "head_dim": 256,
        "query_heads": 4,
        "kv_heads": 1,
        "shares_kv_with": None,
        "attention_scale": 0.0625,
    }
    assert full == {**sliding, "index": 5, "kind": "full_attention", "window": None, "rope_theta": 1_000_000.0}


def test_heads_scaling_and_sharing_of_gemma_4() -> None:
    layers = facts("gemma-4-E2B-it")["layers"]
    assert (layers[4]["head_dim"], layers[4]["rope_type"], layers[4]["rope_parameters"]) == (
        512,
        "proportional",
        {"partial_rotary_factor": 0.25},
    )
    assert [layers[index]["shares_kv_with"] for index in (14, 15, 19)] == [None, 13, 14]


def test_layers_that_do_not_turn_have_no_theta() -> None:
    layers = facts("c4ai-command-r7b-12-2024")["layers"]
    assert [layer["rope_theta"] for layer in layers[:4]] == [50_000.0, 50_000.0, 50_000.0, None]
    assert "rope_type" not in layers[3]


@pytest.mark.parametrize("name", COMPLETE)
def test_a_published_document_fits_the_schema(name: str) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(facts(name))] == []


@pytest.mark.parametrize("name", ["gemma-3-270m", "gemma-4-E2B-it", "gemma-3n-E2B-it", "gpt-oss-20b"])
def test_what_is_built_agrees_with_what_is_published(name: str) -> None:
    published, loaded = facts(name), facts(name, "loaded")
    assert VALIDATOR.is_valid(loaded)
    found = difference(published, loaded, "published", "loaded")
    assert found.compared > 8 * len(published["layers"])
    assert found.differs == ()


@pytest.mark.parametrize("name", ["gemma-2-2b", "llama-3.1-8b-instruct", "gemma-3-4b-it", "embeddinggemma-300m"])
def test_what_the_file_leaves_to_the_class_is_asked_of_transformers(name: str) -> None:
    found = facts(name, "auto")
    assert found["source"] == "loaded"
    assert "transformers" in found["made_by"]
    assert VALIDATOR.is_valid(found)
    assert {"kind", "window", "rope_theta", "head_dim", "attention_scale"} <= found["layers"][0].keys()


def test_alternating_windows_come_from_the_class() -> None:
    layers = facts("gemma-2-2b", "auto")["layers"]
    assert [layer["window"] for layer in layers[:4]] == [4096, None, 4096, None]


def test_the_file_alone_may_not_be_enough() -> None:
    with pytest.raises(DoctorError, match="names no kind for each of its layers") as caught:
        facts("gemma-2-2b", "published")
    assert "--source loaded" in caught.value.hint


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("rms_norm_eps", "1e-6", "norm_eps"),
        ("vocab_size", [1], "vocab_size"),
        ("eos_token_id", {"a": 1}, "eos_token_id"),
    ],
)
def test_values_of_another_kind_are_left_out(tmp_path: Path, key: str, value: object, name: str) -> None:
    found = facts(of(tmp_path, **{key: value}))
    assert VALIDATOR.is_valid(found)
    assert name not in found["model"]


def test_no_torch_where_the_file_is_enough() -> None:
    code = (
        "import sys; from gemma_doctor.cli import main; main(['facts', 'gemma-3-270m']);"
        "print({'torch', 'transformers'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("set()")


# --- as text ---------------------------------------------------------------------------------------------------------


def test_alike_layers_stand_in_one_row() -> None:
    lines = report.text(facts("gemma-3-270m")).splitlines()
    assert lines[0] == "gemma-3-270m: gemma3_text, 18 layers, 32,768 positions; as the published file says"
    assert [line.split()[0] for line in lines[4:]] == ["sliding_attention", "full_attention"]
    assert "0-4, 6-10, 12-16" in lines[4]


def test_what_is_not_known_is_said() -> None:
    text = report.text(facts("gemma-4-E2B-it"))
    assert text.endswith("?: the file leaves it to the model's class; --source loaded asks transformers\n")
    assert "?" not in report.text(facts("gemma-3-270m"))


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    found = facts("gemma-3-270m")
    found["subject"], found["layers"][0]["kind"] = "\x1b[31mred", "\u202ekind\n"
    text = report.text(found)
    assert "\x1b" not in text and "\u202e" not in text
    assert len(text.splitlines()) == len(report.text(facts("gemma-3-270m")).splitlines()) + 1
    assert report.document(found).isascii()


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_command_writes_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["facts", "gemma-3-270m", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == facts("gemma-3-270m")


def test_overrides_of_a_run_file_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run.yaml"
    run.write_text("subject: gemma-3-270m\noverrides: {sliding_window: 256}\n", encoding="utf-8")
    assert main(["facts", "--config", str(run), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["layers"][0]["window"] == 256


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gemma-3-270m", "--source", "loadde"], "--source is 'loadde'"),
        (["gemma-3-270m", "--format", "yaml"], "--format is 'yaml'"),
        (["no-such-model-here.json"], "no-such-model-here.json"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["facts", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err.splitlines()[0]
