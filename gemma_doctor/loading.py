"""From a Subject to a Patient: models in memory, ready to be examined."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gemma_doctor import compat, skeleton
from gemma_doctor.errors import DoctorError
from gemma_doctor.gguf_file import GgufFile
from gemma_doctor.published import text_part
from gemma_doctor.settings import Progress, Settings
from gemma_doctor.sources import read_config
from gemma_doctor.subject import Subject, partly_recurrent
from gemma_doctor.weights import folder_of, real_model, refusals, tokenizer_folder, tokenizer_in

# What a skeleton is cut by; class defaults count.
NEEDED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")


@dataclass(frozen=True)
class FromGguf:
    """What the library made of a GGUF file.

    Attributes:
        file: what that says.
        config: the text decoder's configuration, as loaded.
        tokenizer: as loaded, None if there is none or it is an adapter's own, which may differ on purpose.
    """

    file: GgufFile
    config: Mapping[str, Any]
    tokenizer: Any | None


@dataclass
class Patient:
    """A subject with its models in memory. Faults change it in place (and undo it).

    Attributes:
        subject: what it was made from.
        model: a causal language model in eval mode at the true window W.
        reduced: skeletons only: the same weights at the reduced window W', on which most passes run; else `model`.
        tokenizer: what lies beside the configuration, beside a skeleton's as well; None for a bare config.
        window, reduced_window: W and W', None if the model has no window.
        padding_side: how batches are padded: the tokenizer's setting, or "left" without one.
        cut: skeletons only: what was cut, in words.
        dtype, device, backend: as they really are.
        gguf: the weights come from a GGUF file.
    """

    subject: Subject
    model: Any
    reduced: Any
    tokenizer: Any | None
    window: int | None
    reduced_window: int | None
    padding_side: str
    cut: str
    dtype: str
    device: str
    backend: str
    gguf: FromGguf | None = None

    @contextmanager
    def threads(self) -> Iterator[None]:
        """One thread while a skeleton runs: it is so small that a second one brings nothing, and on a shared machine
        costs ten times as much (measured).
        """
        import torch

        before = torch.get_num_threads()
        if self.subject.weights == "skeleton":
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    @property
    def encodes(self) -> bool:
        """The tokenizer's ids are rows of the model's embedding; a skeleton's vocabulary is cut."""
        return self.tokenizer is not None and self.subject.weights == "real"

    @property
    def pad_token_id(self) -> int:
        """What batches are padded with, an id that the model has."""
        return (self.tokenizer.pad_token_id if self.tokenizer is not None and self.encodes else None) or 0

    @property
    def models(self) -> tuple[Any, ...]:
        """The distinct models."""
        return (self.model,) if self.reduced is self.model else (self.model, self.reduced)


def admit(
    subject: Subject, settings: Settings, progress: Progress, reduced_window: int = skeleton.REDUCED_WINDOW
) -> Patient:
    """Put a subject's models in memory.

    Args:
        reduced_window: at most so large is W' of a skeleton.

    Raises:
        DoctorError: the library does not know the family, refuses the configuration or the attention implementation,
            the weights are damaged or do not fit in memory, or the device is not there.
    """
    _progress_bars_only_on_a_terminal()
    import torch

    from gemma_doctor.capture.masks import dtype_name

    torch.manual_seed(settings.seed)
    device = _device(settings.device)
    _require_backend(settings.attn_implementation, device)
    require_decoder(subject)
    subject, folder = folder_of(subject, settings, progress)
    model, reduced, cut = _models(subject, folder, settings, device, reduced_window)
    require_attention(model)
    own = tokenizer_folder(subject, folder)
    tokenizer, remark = tokenizer_in(own)
    remarks = remark, _ignored(subject, settings), other_ways(model)
    parameter = next(model.parameters())
    return Patient(
        subject=replace(subject, remarks=(*subject.remarks, *filter(None, remarks))),
        model=model,
        reduced=reduced,
        tokenizer=tokenizer,
        window=compat.window(compat.text_config(model)),
        reduced_window=compat.window(compat.text_config(reduced)),
        padding_side=tokenizer.padding_side if tokenizer is not None else "left",
        cut=cut,
        dtype=dtype_name(parameter.dtype),
        device=str(parameter.device),
        backend=compat.attention_backend(model),
        gguf=_from_gguf(subject, folder, tokenizer if own == folder else None),
    )


def _from_gguf(subject: Subject, folder: Path | None, tokenizer: Any | None) -> FromGguf | None:
    """The loaded side is what the library wrote into the folder: a run may lay other keys over it."""
    if subject.gguf is None or subject.weights != "real" or folder is None:
        return None
    config = compat.whole_config(read_config(folder / "config.json")).get_text_config()
    return FromGguf(subject.gguf, config.to_dict(), tokenizer)


def stand_in(patient: Patient, settings: Settings) -> Patient | None:
    """The subject's skeleton beside its real weights, with the same backend, for what does not depend on them.

    Returns:
        None if the library has no model for the text part alone.
    """
    subject = replace(patient.subject, weights="skeleton", demo=False)
    with skeleton.building(subject):
        config = skeleton.text_config(subject.published)
    if not skeleton.can_build(config):
        return None
    model, reduced, cut = _models(subject, None, replace(settings, attn_implementation=patient.backend), patient.device)
    return replace(
        patient,
        subject=subject,
        model=model,
        reduced=reduced,
        tokenizer=None,
        padding_side="left",
        reduced_window=compat.window(compat.text_config(reduced)),
        cut=cut,
        dtype="float32",
        gguf=None,
    )


def _ignored(subject: Subject, settings: Settings) -> str:
    """What was asked for and has no meaning for a skeleton."""
    halved = settings.dtype not in ("auto", "float32")
    if subject.weights == "real" or not halved:
        return ""
    return f"skeletons are examined in float32; --dtype {settings.dtype} is ignored"


def other_ways(model: Any) -> str:
    """What the subject's generation settings ask for beside plain generation, which is what is examined."""
    said = ", ".join(f"{name}={value!r}" for name, value in compat.other_ways(model).items())
    return f"generation settings left out: {said}; see --routes" if said else ""


def _models(
    subject: Subject,
    folder: Path | None,
    settings: Settings,
    device: str,
    reduced_window: int = skeleton.REDUCED_WINDOW,
) -> tuple[Any, Any, str]:
    """The model, its twin at the reduced window, and what was cut; on the device."""
    if subject.weights == "real" and folder is not None:
        model = reduced = real_model(subject, folder, settings, device)
        cut = ""
    else:
        model, reduced, cut = skeleton.build(subject, settings, reduced_window)
    with refusals(subject, f"cannot be moved to {device}", "--device cpu"):
        for one in (model, reduced):
            if not compat.is_placed(one):
                one.to(device)
    return model, reduced, cut


def _progress_bars_only_on_a_terminal() -> None:
    """Most of the library's bars have a switch; that of the GGUF reader heeds only what tqdm finds when imported."""
    if sys.stderr.isatty():
        return
    os.environ.setdefault("TQDM_DISABLE", "1")
    import transformers

    transformers.utils.logging.disable_progress_bar()


def _device(wanted: str) -> str:
    """ "auto" is the first CUDA device where there is one, else the CPU.

    Raises:
        DoctorError: torch has no such device.
    """
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise DoctorError(f"--device {wanted}: torch knows no such device", "auto, cpu, cuda, cuda:1 or mps") from None
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there.get(device.type, False):
        raise DoctorError(f"--device {wanted}: torch sees no such device on this machine", "use --device auto")
    return wanted


def _require_backend(name: str | None, device: str) -> None:
    """The library takes a hub repository for an attention implementation, and runs what it downloads from there."""
    if name == "flex_attention" and device == "cpu":
        raise DoctorError(
            "--attn-implementation flex_attention: its decode step cannot be compiled on a CPU",
            "examine it on the GPU that will run it (--device cuda), or another implementation here",
        )
    if name is not None and "/" in name:
        raise DoctorError(
            f"--attn-implementation {name}: code from the hub is never run", "name one of the library's own, e.g. eager"
        )


def require_decoder(subject: Subject) -> None:
    """The library has a decoder for a subject's configuration that reads its tokens with attention.

    Raises:
        DoctorError: it has none.
    """
    text, _ = text_part(subject.published)
    whole = subject.published["model_type"]
    part = text.get("model_type") or whole
    for model_type in dict.fromkeys((whole, part)):
        compat.require_family(model_type, brings_code="auto_map" in subject.published)
    if compat.loader_for(subject.published) is None:
        raise _no_decoder(f"transformers has no language model for {whole!r}")
    with skeleton.building(subject):
        config = skeleton.text_config(subject.published)
    unnamed = [key for key in NEEDED if getattr(config, key, None) is None]
    if unnamed:
        raise _no_decoder(f"its configuration does not name {unnamed[0]}")
    if getattr(config, "is_encoder_decoder", False):
        raise _no_decoder(f"{whole!r} is an encoder-decoder")
    has_mamba = any(key.startswith("mamba_") for key in config.to_dict())  # some call their layers attention (5.3)
    if has_mamba or partly_recurrent({key: getattr(config, key, None) for key in ("layer_types", "layers_block_type")}):
        raise _no_decoder(f"{whole!r} is partly recurrent")
    if subject.weights == "skeleton" and not skeleton.can_build(config):
        raise _no_decoder(f"transformers has no language model for the text part of {whole!r} alone")


def require_attention(model: Any) -> None:
    """Every layer of the text decoder has an attention module that can be watched.

    Raises:
        DoctorError: one has none, or there are no layers.
    """
    from gemma_doctor.capture.model_facts import attention_modules, text_decoder

    try:
        layers, attention = len(text_decoder(model).layers), attention_modules(model)
    except LookupError as error:
        raise _no_decoder(str(error)) from None
    if not set(range(layers)) <= attention.keys():
        missing = layers - len(attention)
        raise _no_decoder(f"{missing} of {layers} layers of {type(model).__name__} have no attention module known here")


def _no_decoder(why: str) -> DoctorError:
    return DoctorError(f"not a decoder that this tool examines: {why}", "gemma-doctor presets lists models that are")
