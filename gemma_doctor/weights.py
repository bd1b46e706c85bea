"""Real weights and their tokenizers: where they lie, and into memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gemma_doctor import adapters, compat, demo, dequantised, hub, weight_files
from gemma_doctor.errors import DoctorError, in_one_line, one_line
from gemma_doctor.expectations import lay_over
from gemma_doctor.settings import Progress, Settings
from gemma_doctor.sources import read_config
from gemma_doctor.subject import Subject, skeleton_remark
from gemma_doctor.weight_files import SKELETON_WILL_DO

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt")


def folder_of(subject: Subject, settings: Settings, progress: Progress) -> tuple[Subject, Path | None]:
    """Where weights and tokenizer lie, after making or downloading what is missing.

    The demo falls back to its skeleton where a release cannot read the packaged file, unless real weights are demanded.
    """
    if subject.demo:
        try:
            folder = demo.folder(progress)
            return replace(subject, gguf=demo.keys()), folder
        except DoctorError as error:
            if settings.weights == "real":
                raise
            remark = skeleton_remark(error.message, error.hint)
            return replace(subject, weights="skeleton", demo=False, remarks=(*subject.remarks, remark)), None
    if subject.weights == "real" and subject.gguf is not None:
        folder = dequantised.folder(subject.gguf, progress)
        # what the library made of the file is what it loads; the file's own keys stay in `config`
        as_made = lay_over(read_config(folder / "config.json"), settings.overrides)
        return replace(subject, published=as_made), folder
    if subject.weights == "real" and subject.repository is not None and not _are_whole(subject.folder):
        return subject, hub.fetch_weights(subject.repository, progress)
    return subject, subject.folder


def _are_whole(folder: Path | None) -> bool:
    return folder is not None and weight_files.are_named(folder) and not weight_files.lacking(folder)


def real_model(subject: Subject, folder: Path, settings: Settings, device: str) -> Any:
    import torch

    _require_shards(subject, folder)
    dtype = torch.float32 if settings.dtype == "auto" else getattr(torch, settings.dtype)
    arguments = compat.dtype_argument(dtype)
    if settings.attn_implementation:
        arguments["attn_implementation"] = settings.attn_implementation
    arguments |= _quantised(subject, settings, device)
    loader = compat.loader_for(subject.published)
    with refusals(subject, "the model cannot be loaded", SKELETON_WILL_DO):
        if subject.demo or subject.overridden:  # the configuration is not the one that lies beside the weights
            arguments["config"] = compat.whole_config(subject.published)
        model, info = loader.from_pretrained(
            folder,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            **arguments,
        )
    missing = sorted(info["missing_keys"])
    if missing:  # the library fills them with random numbers and goes on
        raise DoctorError(
            f"{subject.name}: the weights lack {len(missing)} tensors of the model, {missing[0]} among them",
            SKELETON_WILL_DO,
        )
    if subject.adapter is not None:
        model = adapters.merged(model, subject.adapter, subject.name)
    return model.eval().requires_grad_(False)


def _quantised(subject: Subject, settings: Settings, device: str) -> dict[str, Any]:
    """More arguments for weights that are saved quantised: they are put on their device as they are loaded.

    Raises:
        DoctorError: the release does not know the method, or a package that it needs is not installed.
    """
    method = compat.quantisation(subject.published)
    if not method:
        return {}
    said = f"{subject.name}: its weights are quantised with {method[:40]!r}"
    if not compat.knows_quantisation(method):
        raise DoctorError(f"{said}, which transformers {compat.release()} does not know", SKELETON_WILL_DO)
    lacking = compat.lacking_for(method)
    if lacking:
        raise DoctorError(f"{said}, and {lacking} is not installed", f"pip install {lacking}; {SKELETON_WILL_DO}")
    as_saved = compat.dtype_argument("auto") if settings.dtype == "auto" else {}
    return {"device_map": {"": device}, **as_saved}


def _require_shards(subject: Subject, folder: Path) -> None:
    lacking = weight_files.lacking(folder)
    if lacking:
        raise DoctorError(f"{subject.name}: {lacking}", f"get them; {SKELETON_WILL_DO}")


def tokenizer_folder(subject: Subject, folder: Path | None) -> Path | None:
    """An adapter may bring a tokenizer of its own."""
    own = subject.adapter.folder if subject.adapter is not None else None
    return own if own is not None and any((own / name).is_file() for name in TOKENIZER_FILES) else folder


def tokenizer_in(folder: Path | None) -> tuple[Any | None, str]:
    """The tokenizer in a folder, None if there is none, and a remark if there is one that cannot be loaded."""
    if folder is None or not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return None, ""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True), ""
    except Exception as error:  # a sick tokenizer does not stop the examination of the model
        return None, f"the tokenizer cannot be loaded: {in_one_line(error)}"


@contextmanager
def refusals(subject: Subject, what: str, hint: str) -> Iterator[None]:
    """Whatever the library raises becomes one line; a lack of memory has a hint of its own."""
    import torch

    what = f"{subject.name}: {what}"
    with one_line(what, hint):
        try:
            yield
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise DoctorError(f"{what}: out of memory", "--dtype bfloat16 takes half as much") from error
