"""`gemma-doctor plan`: what it prints, its exit codes, its JSON, and what it takes for the memory of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemma_doctor import cli, presets
from gemma_doctor.capture import device
from gemma_doctor.check import CouldNotLook
from gemma_doctor.evidence import DeviceMemory
from gemma_doctor.loading import Patient

this_machine = device.this_machine
ROOT = Path(__file__).parent.parent
E2B = """\
gemma-4-E2B-it: gemma4_text, 35 layers, 131,072 positions; keys and values in bfloat16, batch of 4

at 1,000,000 tokens:
layer kind                layers  numbers per key  keys needed  bytes/token    cache  without the window
sliding_attention, W=512      12      2 x 1 x 256          512       12,288  25.2 MB             49.2 GB
full_attention                 3      2 x 1 x 512    1,000,000        6,144  24.6 GB             24.6 GB
sliding_attention, W=512      16  another layer's            0            0  0 bytes             0 bytes
full_attention                 4  another layer's            0            0  0 bytes             0 bytes
total                         35                                     18,432  24.6 GB             73.7 GB

context       cache  without the window  fits
8,192      226.5 MB            604.0 MB   yes
32,768     830.5 MB              2.4 GB   yes
131,072      3.2 GB              9.7 GB   yes
1,000,000   24.6 GB             73.7 GB    NO

note: weights not counted: there are none on this machine
note: 1,000,000 tokens are beyond the 131,072 positions of the model
A sliding layer needs W keys at a step: W-1 that it kept, and the new token's own.
Activations, and what the runtime itself takes, come on top.
DOES NOT FIT: 24.6 GB at 1,000,000 tokens (cache alone), in 24.0 GB (RAM of this machine)
"""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("GEMMA_DOCTOR_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setattr(device, "this_machine", lambda: DeviceMemory("cpu", 24 * 10**9, None))
    yield


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    code = cli.main(["plan", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, _ = plan(capsys, *arguments, "--format", "json")
    loaded: dict[str, Any] = json.loads(out)
    assert code == (1 if loaded["fits"] is False else 0)
    return loaded


def test_a_million_tokens_do_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = plan(capsys, "gemma-4-E2B-it", "--context", "1000000", "--batch", "4")
    assert (code, err) == (1, "")
    assert out == E2B


def test_the_default_subject_at_its_own_positions(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = plan(capsys)
    assert code == 0
    assert out.startswith(
        "gemma-3-270m: gemma3_text, 18 layers, 32,768 positions; keys and values in bfloat16, batch of 1"
    )
    assert "note: no SUBJECT given: this is the default\n" in out
    assert out.endswith("fits: 108.5 MB at 32,768 tokens (cache alone), in 24.0 GB (RAM of this machine)\n")


def test_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    made = document(capsys, "gemma-3-1b-it", "--context", "40_000", "--dtype", "float32", "--memory", "1GiB")
    assert made.keys() == {
        *("subject", "family", "dtype", "batch", "context", "positions", "kinds", "contexts"),
        *("weights", "memory", "fits", "notes"),
    }
    assert (made["dtype"], made["context"], made["positions"]) == ("float32", 40_000, 32_768)
    assert made["memory"] == {"from": "--memory", "total": 2**30}
    assert [one["context"] for one in made["contexts"]] == [8_192, 32_768, 40_000]
    assert made["contexts"][-1]["bytes"] == sum(kind["bytes"] for kind in made["kinds"])
    assert made["kinds"][0] == {
        "kind": "sliding_attention",
        "window": 512,
        "kv_heads": 1,
        "head_dim": 256,
        "shares": False,
        "layers": 22,
        "keys": 512,
        "bytes_per_token": 22 * 2 * 256 * 4,
        "bytes": 22 * 2 * 256 * 4 * 512,
        "bytes_without_window": 22 * 2 * 256 * 4 * 40_000,
    }
    assert "40,000 tokens are beyond the 32,768 positions of the model" in made["notes"]


def test_the_same_document_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(capsys, "gemma-3-1b-it", "--format", "json") == plan(capsys, "gemma-3-1b-it", "--format", "json")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--context", "0"), "--context is 0; it takes a number from 1 to 1000000"),
        (("--context", "1000001"), "--context is 1000001; it takes a number from 1 to 1000000"),
        (("--context", "long"), "--context is 'long'; it takes a whole number"),
        (("--batch", "0"), "--batch is 0"),
        (("--memory", "lots"), "--memory is 'lots'; it takes a size such as 24GB or 22.5GiB"),
        (("--dtype", "int4"), "--dtype is 'int4'"),
        (("--format", "xml"), "--format is 'xml'"),
        (("no-such-model",), "there is no preset, file or folder 'no-such-model'"),
        (("embeddinggemma-300m",), "embeddinggemma-300m is bidirectional"),
        (("recurrentgemma-2b-it",), "not a decoder"),
    ],
)
def test_what_cannot_be_computed_is_exit_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    code, out, err = plan(capsys, *arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_what_the_file_leaves_to_the_class_is_asked_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Mistral names no head_dim, Gemma 3 4B almost nothing."""
    mistral = document(capsys, "mistral-7b-v0.1")
    assert [(kind["window"], kind["head_dim"], kind["layers"]) for kind in mistral["kinds"]] == [(4096, 128, 32)]
    gemma = document(capsys, "gemma-3-4b-it")
    assert gemma["positions"] == 131_072
    assert [(kind["kv_heads"], kind["head_dim"], kind["layers"]) for kind in gemma["kinds"]] == [
        (4, 256, 29),
        (4, 256, 5),
    ]


def test_latent_attention_is_refused_in_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mapping = {"model_type": "deepseek_v3", "num_hidden_layers": 2, "kv_lora_rank": 512}
    (tmp_path / "config.json").write_text(json.dumps(mapping))
    code, out, err = plan(capsys, str(tmp_path))
    assert (code, out) == (2, "")
    assert "latent attention (kv_lora_rank): what its cache takes depends on the release" in err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(presets.load("gemma-3-1b-it")))
    return tmp_path


def test_weights_in_a_folder_count(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"0" * 3_000_000)
    code, out, _ = plan(capsys, str(folder), "--context", "1000", "--memory", "20MB")
    assert code == 0
    assert "fits: 18.6 MB at 1,000 tokens (15.6 MB of cache, 3.0 MB of weights), in 20.0 MB (--memory)" in out
    assert plan(capsys, str(folder), "--context", "1000", "--memory", "18MB")[0] == 1


def test_shards_count_once_and_only_if_all_are_there(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "one.safetensors").write_bytes(b"0" * 100)
    made = document(capsys, str(folder))
    assert (made["weights"], made["notes"]) == (
        None,
        ["weights not counted: some of their files are missing or damaged"],
    )
    (folder / "two.safetensors").write_bytes(b"0" * 10)
    assert document(capsys, str(folder))["weights"] == 110


def test_names_cannot_act_on_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    odd = tmp_path / "\x1b[31mred"
    odd.mkdir()
    (odd / "config.json").write_text(json.dumps(presets.load("gemma-3-1b-it")))
    assert "\x1b" not in plan(capsys, str(odd))[1]
    assert "\x1b" not in plan(capsys, str(odd), "--format", "json")[1]


def test_a_run_file_may_lay_keys_over(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = tmp_path / "run.yaml"
    run.write_text("subject: gemma-3-1b-it\noverrides: {sliding_window: 100}\ndtype: float32\n")
    made = document(capsys, str(run))
    assert (made["kinds"][0]["window"], made["dtype"]) == (100, "float32")


def test_memory_that_nobody_names(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> DeviceMemory:
        raise CouldNotLook("no")

    monkeypatch.setattr(device, "this_machine", refuse)
    code, out, _ = plan(capsys)
    assert code == 0
    assert out.endswith("this machine does not say how much memory it has: --memory SIZE\n")
    assert document(capsys)["memory"] is None


def test_a_complete_file_needs_no_torch() -> None:
    code = (
        "import sys; from gemma_doctor import cli;"
        "cli.main(['plan', 'gemma-4-31B-it', '--context', '1000', '--memory', '1GB']);"
        "print({'torch', 'transformers'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "set()"


# --- memory of this machine ------------------------------------------------------------------------------------------


@pytest.fixture
def smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Put a driver's tool that runs these shell lines into an otherwise empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def install(lines: str) -> None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{lines}\n")
        tool.chmod(0o755)

    return install


@pytest.mark.parametrize(("limit", "total"), [("1000000\n", 1_000_000), ("max\n", None)])
def test_a_container_may_have_less_than_the_machine(
    monkeypatch: pytest.MonkeyPatch, smi: object, tmp_path: Path, limit: str, total: int | None
) -> None:
    monkeypatch.setattr(device, "CGROUP_LIMIT", tmp_path / "memory.max")
    machine = this_machine()
    assert machine.total > 10**8
    (tmp_path / "memory.max").write_text(limit)
    assert this_machine() == DeviceMemory("cpu", total or machine.total, None)


def test_the_first_gpu_comes_before_ram(smi: Callable[[str], None]) -> None:
    smi("echo 24564")
    assert this_machine() == DeviceMemory("cuda:0", 24_564 * 2**20, None)


@pytest.mark.parametrize("lines", ["exit 9", "echo '[N/A]'"])
def test_a_driver_that_says_nothing_is_no_gpu(smi: Callable[[str], None], lines: str) -> None:
    smi(lines)
    assert this_machine().device == "cpu"


def test_a_system_that_says_nothing(smi: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sysconf")
    with pytest.raises(CouldNotLook, match="does not say how much memory"):
        this_machine()


def test_real_weights_are_counted_and_a_skeletons_are_not(patient_of: Callable[..., Patient]) -> None:
    patient = patient_of("gemma-3-1b-it")
    memory = device.device_memory(patient)
    assert (memory.device, memory.weights) == (patient.device, None)
    assert memory.total > 10**8
    real = replace(patient, subject=replace(patient.subject, weights="real"))
    assert device.device_memory(real).weights == 4 * sum(weight.numel() for weight in patient.model.parameters())
