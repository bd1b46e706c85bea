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
from test_healthy_matrix import NOT_DECODERS

from gemma_doctor import cli, presets
from gemma_doctor.capture import device
from gemma_doctor.check import CouldNotLook
from gemma_doctor.evidence import DeviceMemory
from gemma_doctor.loading import Patient
from gemma_doctor.plan import DAMAGED, NOT_COUNTED

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

context       cache  without the window  cache fits
8,192      226.5 MB            604.0 MB         yes
32,768     830.5 MB              2.4 GB         yes
131,072      3.2 GB              9.7 GB         yes
1,000,000   24.6 GB             73.7 GB          NO

note: weights not counted: only safetensors files of the subject's own folder are
note: 1,000,000 tokens are beyond the 131,072 positions of the model
A sliding layer needs W keys at a step: W-1 that it kept, and the new token's own.
Activations, and what the runtime itself takes, come on top.
the cache alone does not fit: 24.6 GB at 1,000,000 tokens, in 24.0 GB (RAM of this machine)
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
    assert f"note: {NOT_COUNTED}\n" in out  # whether or not the weights of the demo are installed
    assert out.endswith("\nthe cache fits: 108.5 MB at 32,768 tokens, in 24.0 GB (RAM of this machine)\n")


def test_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    made = document(capsys, "gemma-3-1b-it", "--context", "40_000", "--dtype", "float32", "--memory", "1GiB")
    assert made.keys() == {
        *("subject", "family", "dtype", "batch", "context", "positions", "kinds", "contexts"),
        *("weights", "weights_counted", "memory", "fits", "notes"),
    }
    assert (made["dtype"], made["context"], made["positions"]) == ("float32", 40_000, 32_768)
    assert made["memory"] == {"from": "--memory", "total": 2**30}
    assert [one["context"] for one in made["contexts"]] == [8_192, 32_768, 40_000]
    assert (made["weights"], made["weights_counted"], made["fits"]) == (None, False, True)
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
        *(
            (
                ("--context", written),
                f"--context is {written!r}; it takes a whole number: write it in full, such as 131072",
            )
            for written in ("128k", "1M", "1.5 m", "128Ki")
        ),
        (("--batch", "0"), "--batch is 0"),
        (("--batch", "4k"), "--batch is '4k'; it takes a whole number: write it in full"),
        (("--memory", "lots"), "--memory is 'lots'; it takes a number and a unit, such as 24GB"),
        (("--memory", "24"), "--memory is '24'; it takes a number and a unit, such as 24GB: B, kB, MB, GB, TB"),
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
    assert "gemma-doctor check" not in err


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


def planned_from(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mapping: dict[str, Any], *arguments: str
) -> tuple[int, str, str]:
    (tmp_path / "config.json").write_text(json.dumps(mapping))
    return plan(capsys, str(tmp_path), *arguments)


FALCON_7B = {
    **{"model_type": "falcon", "num_hidden_layers": 32, "num_attention_heads": 71, "hidden_size": 4544},
    **{"multi_query": True, "new_decoder_architecture": False, "parallel_attn": True, "bias": False},
}
LLAMA = {
    **{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 8, "hidden_size": 512},
    **{"num_key_value_heads": 2, "max_position_embeddings": 4096},
}


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        (FALCON_7B, "multi_query"),
        ({**FALCON_7B, "num_key_value_heads": 1}, "multi_query"),
        ({"model_type": "jetmoe"}, "kv_channels"),
        ({"model_type": "gpt_neox", "num_hidden_layers": 2}, "no usable num_key_value_heads"),
        ({**LLAMA, "num_key_value_heads": 0}, "no usable num_key_value_heads"),
        ({**LLAMA, "num_key_value_heads": -1}, "no usable num_key_value_heads"),
        ({**LLAMA, "head_dim": 0}, "no usable head_dim"),
        ({**presets.load("gemma-3-1b-it"), "num_key_value_heads": 0}, "no usable num_key_value_heads"),
        ({"model_type": "bamba"}, "is partly recurrent"),
    ],
)
def test_sizes_that_a_family_derives_in_its_own_way_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mapping: dict[str, Any], said: str
) -> None:
    code, out, err = planned_from(capsys, tmp_path, mapping)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize("name", [name for name in presets.names() if name not in NOT_DECODERS])
def test_every_preset_that_generates_is_planned(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, out, err = plan(capsys, name, "--memory", "8TB")
    assert (code, "\nthe cache fits: " in out) == (0, True) or f"{name} is bidirectional" in err


@pytest.mark.parametrize("positions", [0, -5])
def test_positions_that_are_none_are_not_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, positions: int
) -> None:
    mapping = {**presets.load("gemma-3-1b-it"), "max_position_embeddings": positions}
    code, out, err = planned_from(capsys, tmp_path, mapping)
    assert (code, err) == (0, "")
    assert "beyond" not in out
    assert "gemma3_text, 26 layers; keys" in out
    assert "the model names no positions, and no --context is given: planned for 1,000,000 tokens" in out
    out = plan(capsys, str(tmp_path), "--context", "1")[1]
    assert "names no positions" not in out
    assert "at 1 token:\n" in out
    assert " at 1 token, in " in out


def test_one_of_a_thing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mapping = {**LLAMA, "num_hidden_layers": 1, "max_position_embeddings": 1}
    out = planned_from(capsys, tmp_path, mapping, "--memory", "1B")[1]
    assert "llama, 1 layer, 1 position; keys" in out
    assert out.endswith("the cache alone does not fit: 512 bytes at 1 token, in 1 byte (--memory)\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(presets.load("gemma-3-1b-it")))
    return tmp_path


NO_NAMES: tuple[Any, ...] = (None, 1, ["one.safetensors"], {})


def safetensors(size: int) -> bytes:
    """A file of so many bytes, of which a header takes two."""
    return (2).to_bytes(8, "little") + b"{}" + bytes(size - 10)


def test_weights_in_a_folder_count(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(safetensors(3_000_000))
    code, out, _ = plan(capsys, str(folder), "--context", "1000", "--memory", "20MB")
    assert code == 0
    assert "\nfits: 18.6 MB at 1,000 tokens (15.6 MB of cache, 3.0 MB of weights), in 20.0 MB (--memory)" in out
    assert "without the window  fits\n" in out
    code, out, _ = plan(capsys, str(folder), "--context", "1000", "--memory", "18MB")
    assert (code, "\nDOES NOT FIT: 18.6 MB at 1,000 tokens (15.6 MB of cache" in out) == (1, True)
    assert document(capsys, str(folder))["weights_counted"] is True


def test_shards_count_once_and_only_if_all_are_there(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "one.safetensors").write_bytes(safetensors(100))
    made = document(capsys, str(folder))
    assert (made["weights"], made["notes"]) == (
        None,
        [DAMAGED],
    )
    (folder / "two.safetensors").write_bytes(safetensors(10))
    assert document(capsys, str(folder))["weights"] == 110


def test_the_hub_cache_links_its_files(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    blob = folder / "blob"
    blob.write_bytes(safetensors(50))
    (folder / "model.safetensors").symlink_to(blob)
    assert document(capsys, str(folder))["weights"] == 50


@pytest.mark.parametrize("name", ["", "pytorch_model.bin", "model.gguf", "consolidated.safetensors"])
def test_weights_in_other_files_are_not_said_to_be_missing(
    capsys: pytest.CaptureFixture[str], folder: Path, name: str
) -> None:
    if name:
        (folder / name).write_bytes(safetensors(100))
    made = document(capsys, str(folder))
    assert (made["weights"], made["weights_counted"], made["notes"]) == (None, False, [NOT_COUNTED])


@pytest.mark.parametrize("content", [b"", b"12345678", b"version https://git-lfs.github.com/spec/v1\nsize 9\n"])
def test_a_file_without_weights_is_damaged(capsys: pytest.CaptureFixture[str], folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    made = document(capsys, str(folder))
    assert (made["weights"], made["notes"]) == (None, [DAMAGED])


@pytest.mark.parametrize(
    "index",
    [
        *(b"", b"\xff\xfe", b"{", b"[" * 100_000, b"[]", b"{}", b'{"weight_map": []}', b'{"weight_map": {}}'),
        *(
            json.dumps({"weight_map": {"a": "one.safetensors", "b": shard}}).encode()
            for shard in ("", ".", "inside", "/dev/zero", "../outside", "inside/../../outside", "no\0name", "\ud800")
        ),
        *(json.dumps({"weight_map": {"a": shard}}).encode() for shard in NO_NAMES),
    ],
)
def test_an_index_that_names_no_weights_of_the_folder_is_damaged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, index: bytes
) -> None:
    folder = tmp_path / "model"
    (folder / "inside").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(presets.load("gemma-3-1b-it")))
    for path in (folder / "one.safetensors", tmp_path / "outside"):
        path.write_bytes(safetensors(100))
    (folder / "model.safetensors.index.json").write_bytes(index)
    code, out, err = plan(capsys, str(folder))
    assert (code, err) == (0, "")
    assert f"note: {DAMAGED}\n" in out


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
    assert out.endswith(
        "the cache needs 108.5 MB at 32,768 tokens; this machine does not say how much memory it has: --memory SIZE\n"
    )
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
