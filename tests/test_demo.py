"""The packaged Gemma 3 270M: made once, whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gemma_doctor import compat, demo, dequantised
from gemma_doctor.errors import DoctorError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and a release that can read the file."""
    monkeypatch.setenv("GEMMA_DOCTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(compat, "reads_gguf", lambda architecture: True)
    monkeypatch.setattr(demo, "_assembled", lambda scratch: scratch / "model.gguf")
    return tmp_path / "cache"


def writes(content: str) -> Callable[[Path, Path, str, object], None]:
    def dequantise(_: Path, made: Path, refused: str, listed: object) -> None:
        made.mkdir()
        (made / "model.safetensors").write_text(content, encoding="utf-8")

    return dequantise


def test_it_is_made_once_and_kept_by_hash_and_release(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(dequantised, "_dequantise", writes("first"))
    folder = demo.folder(lines.append)
    assert demo.SHA256[:12] in folder.name and compat.release() in folder.name
    assert list(cache.iterdir()) == [folder]
    assert len(lines) == 1
    monkeypatch.setattr(dequantised, "_dequantise", writes("second"))
    assert (demo.folder(lines.append) / "model.safetensors").read_text(encoding="utf-8") == "first"
    assert len(lines) == 1


def test_a_failed_run_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Path, made: Path, refused: str, listed: object) -> None:
        writes("half")(_, made, refused, listed)
        raise RuntimeError("No space left on device")

    monkeypatch.setattr(dequantised, "_dequantise", fails)
    with pytest.raises(DoctorError, match="No space left on device"):
        demo.folder(lambda _: None)
    assert list(cache.iterdir()) == []


def test_ctrl_c_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: Path, made: Path, refused: str, listed: object) -> None:
        writes("half")(_, made, refused, listed)
        raise KeyboardInterrupt

    monkeypatch.setattr(dequantised, "_dequantise", interrupted)
    with pytest.raises(KeyboardInterrupt):
        demo.folder(lambda _: None)
    assert list(cache.iterdir()) == []


KILLED = """
import time
from gemma_doctor import compat, demo, dequantised

def slow(gguf, made, refused, listed):
    made.mkdir()
    (made / "model.safetensors").write_text("half")
    print("writing", flush=True)
    time.sleep(60)

compat.reads_gguf = lambda architecture: True
demo._assembled = lambda scratch: scratch / "model.gguf"
dequantised._dequantise = slow
demo.folder(lambda line: None)
"""


def test_a_killed_run_leaves_nothing_that_is_taken_for_a_model(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    process.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    process.communicate()
    assert not demo.target().exists()
    (left,) = cache.iterdir()
    monkeypatch.setattr(dequantised, "_dequantise", writes("whole"))
    folder = demo.folder(lambda _: None)
    assert (folder / "model.safetensors").read_text(encoding="utf-8") == "whole"
    assert left.exists()  # it might belong to a run that is still at work

    hours_ago = time.time() - 2 * dequantised.STALE_SECONDS
    os.utime(left, (hours_ago, hours_ago))
    folder.rename(cache / "elsewhere")
    demo.folder(lambda _: None)
    assert not left.exists()


def test_the_run_that_comes_second_takes_what_the_first_made(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(_: Path, made: Path, refused: str, listed: object) -> None:
        writes("second")(_, made, refused, listed)
        demo.target().mkdir()
        (demo.target() / "model.safetensors").write_text("first", encoding="utf-8")

    monkeypatch.setattr(dequantised, "_dequantise", overtaken)
    assert (demo.folder(lambda _: None) / "model.safetensors").read_text(encoding="utf-8") == "first"


def test_a_cache_that_cannot_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.parent.joinpath("file").touch()
    monkeypatch.setenv("GEMMA_DOCTOR_CACHE", str(cache.parent / "file"))
    with pytest.raises(DoctorError, match="cannot be written") as caught:
        demo.folder(lambda _: None)
    assert "GEMMA_DOCTOR_CACHE" in caught.value.hint


def test_a_release_that_cannot_read_the_file(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "reads_gguf", lambda architecture: False)
    with pytest.raises(DoctorError, match="cannot read the packaged gemma-3-270m") as caught:
        demo.folder(lambda _: None)
    assert caught.value.hint == "pip install 'transformers>=4.52'"
    assert not cache.exists()


def test_asking_whether_it_is_installed_imports_nothing_heavy() -> None:
    code = (
        "import sys; from gemma_doctor import demo; demo.installed()\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'gguf', 'numpy', 'peft')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.real
@pytest.mark.skipif(not demo.installed(), reason="needs the demo extra")
def test_the_packaged_file_is_the_pinned_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = demo._assembled(tmp_path)
    assert path.stat().st_size > 200_000_000
    monkeypatch.setattr(demo, "SHA256", "0" * 64)
    path.unlink()
    with pytest.raises(DoctorError, match="not the pinned file"):
        demo._assembled(tmp_path)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.skipif(not demo.installed(), reason="needs the demo extra")
def test_the_real_model_answers_sensibly() -> None:
    import torch
    import transformers

    if not compat.reads_gguf(demo.ARCHITECTURE):
        pytest.skip("this release cannot read the packaged file")
    folder = demo.folder(lambda _: None)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([[2, 818, 5279, 529, 7001, 563]])  # "<bos>The capital of France is"
    with torch.no_grad():
        top = model(ids).logits[0, -1].topk(20).indices.tolist()
    assert 9079 in top  # " Paris"
