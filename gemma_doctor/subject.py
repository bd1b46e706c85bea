"""Resolves a SUBJECT to its published configuration and says which weights will be examined. No torch here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemma_doctor import demo, hub, presets
from gemma_doctor.errors import DoctorError, suggest
from gemma_doctor.evidence import Config
from gemma_doctor.expectations import expectations, lay_over
from gemma_doctor.published import read, text_part
from gemma_doctor.settings import DEFAULT_SUBJECT, Settings

SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
RECURRENT_KINDS = ("conv", "hybrid", "linear_attention", "mamba", "recurrent")
LAYERS_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
MOST_LAYERS = 10_000
DEEPEST = 50


@dataclass(frozen=True)
class Subject:
    """What is examined, before anything heavy is loaded.

    Attributes:
        name: for headlines, as the user gave it ("gemma-3-270m", "./my-gemma").
        kind: "preset", "folder", "config file", "hub id".
        published: the whole published mapping, overrides applied.
        config: evidence read from it, with the expectations.
        folder: where tokenizer and weights lie, None if there is no such folder.
        weights: "real" or "skeleton": what a full run will examine.
        remarks: headline lines, e.g. why this is a skeleton and what would get the weights.
        demo: the real weights come from the packaged Gemma 3 270M (see demo.py), not from `folder`.
        overridden: the run lays keys over what is published.
    """

    name: str
    kind: str
    published: Mapping[str, Any]
    config: Config
    folder: Path | None
    weights: str
    remarks: tuple[str, ...]
    demo: bool = False
    overridden: bool = False


@dataclass(frozen=True)
class _Source:
    """Where a SUBJECT was found. `preset` is the preset that it is, or that was published under its hub id."""

    name: str
    kind: str
    mapping: Mapping[str, Any]
    folder: Path | None = None
    preset: str = ""
    remarks: tuple[str, ...] = ()


def resolve(settings: Settings) -> Subject:
    """Find the subject that the settings name.

    Neither torch nor transformers is imported. The hub is asked only for an id that the local hub cache does not hold.

    Raises:
        DoctorError: no such subject, no usable configuration, no decoder, or `weights` is "real" and there are none.
    """
    source = _locate(settings.subject or DEFAULT_SUBJECT, explicit=settings.subject is not None)
    published = _laid_over(source, settings.overrides)
    reason = not_a_decoder(published)
    if reason:
        raise DoctorError(
            f"not a decoder that this tool examines: {source.name} is {reason}",
            "gemma-doctor presets lists models that are",
        )
    origin = f"preset {source.preset}" if source.folder is None and source.preset else "published config.json"
    facts = read(published, f"{origin} with overrides" if settings.overrides else origin)
    unchanged = bool(source.preset) and published == presets.load(source.preset)
    has_demo = source.kind == "preset" and source.preset == demo.PRESET
    weights, remark = _weights(source, settings, has_demo)
    return Subject(
        name=source.name,
        kind=source.kind,
        published=published,
        config=Config(facts, expectations(facts, source.preset, unchanged, settings.expect)),
        folder=source.folder,
        weights=weights,
        remarks=(*source.remarks, *([remark] if remark else [])),
        demo=has_demo and weights == "real",
        overridden=bool(settings.overrides),
    )


def _laid_over(source: _Source, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the run's overrides, once more a possible one.

    Raises:
        DoctorError: it is not.
    """
    published = lay_over(source.mapping, overrides)
    text, prefix = text_part(published)
    if _depth(published) > DEEPEST:
        raise DoctorError(f"{source.name}: nested too deeply", "a configuration has a few levels")
    for key, value in (("model_type", published["model_type"]), (f"{prefix}model_type", text.get("model_type"))):
        if not isinstance(value, str | None):
            raise DoctorError(f"{source.name}: {key} must be a name, not {value!r}"[:200], "e.g. gemma3_text")
    for key in LAYERS_KEYS:
        value = text.get(key)
        if isinstance(value, int) and value > MOST_LAYERS:
            raise DoctorError(
                f"{source.name}: {prefix}{key}: more than {MOST_LAYERS:,} layers", f"correct {prefix}{key}"
            )
    return published


def _depth(content: Any) -> int:
    """How many levels of mappings and lists; counting stops where there are too many."""
    depth, level = 0, [content]
    while level and depth <= DEEPEST:
        inner = [one for one in level if isinstance(one, (Mapping, list))]
        level = [value for one in inner for value in (one.values() if isinstance(one, Mapping) else one)]
        depth += bool(inner)
    return depth


def not_a_decoder(mapping: Mapping[str, Any]) -> str:
    """What a configuration is instead of a decoder that reads its tokens with attention; empty if it is one."""
    text, _ = text_part(mapping)
    model_type = str(mapping["model_type"])
    if mapping.get("is_encoder_decoder") is True or {"encoder", "decoder"} <= mapping.keys():
        return "an encoder-decoder"
    if model_type.endswith("_assistant"):
        return "a drafter, which reads the keys and values of its target model"
    if model_type.startswith("diffusion"):
        return "a diffusion model, which denoises blocks of tokens"
    if partly_recurrent(text) or model_type == "recurrent_gemma" or "block_types" in text:
        return "partly recurrent"
    architectures = mapping.get("architectures")
    if isinstance(architectures, list) and any(str(one).endswith("ForMaskedLM") for one in architectures):
        return "an encoder"
    return ""


def partly_recurrent(text: Mapping[str, Any]) -> bool:
    """Some layers of a text part, published or as loaded, read their tokens with something else than attention."""
    listed = [text.get(key) for key in ("layer_types", "layers_block_type")]
    return any(
        kind in RECURRENT_KINDS for kinds in listed if isinstance(kinds, (list, tuple)) for kind in map(str, kinds)
    )


def has_safetensors(folder: Path) -> bool:
    """The folder holds weights that may be read."""
    return any((folder / name).is_file() for name in SAFETENSORS)


def skeleton_remark(why: str, get: str) -> str:
    """The headline of a skeleton that nobody asked for: why it is one, and what would get the real weights."""
    return f"SKELETON: random weights ({why}); to get real ones: {get}"


def _locate(name: str, explicit: bool) -> _Source:
    path = Path(name).expanduser()
    if explicit and (path / "config.json").is_file():  # even if a preset has that name: so does the library
        return _Source(name, "folder", read_config(path / "config.json"), folder=path)
    if name in presets.names():
        return _Source(name, "preset", presets.load(name), preset=name)
    if path.is_dir():
        adapter = (path / "adapter_config.json").is_file()
        raise DoctorError(
            f"{name}: the folder holds no config.json",
            "merge the adapter into its model" if adapter else "name a model's folder",
        )
    if path.suffix == ".gguf":
        raise DoctorError(f"{name}: GGUF files cannot be examined yet", "name the folder of the model it was made from")
    if path.exists():
        return _Source(name, "config file", read_config(path))
    if HUB_ID.fullmatch(name) and path.suffix != ".json" and not name.startswith("."):
        return _from_hub(name)
    raise DoctorError(
        f"there is no preset, file or folder {name!r}{suggest(name, presets.names())}",
        "gemma-doctor presets lists the presets; hub ids are written owner/name",
    )


def _from_hub(repository: str) -> _Source:
    preset = presets.for_hub_id(repository) or ""
    folder = hub.cached(repository)
    problem = "" if folder is not None else hub.unreachable_because(repository)
    if folder is None and not problem:
        folder = hub.fetch_config(repository)
    if folder is not None:
        return _Source(repository, "hub id", read_config(folder / "config.json"), folder=folder, preset=preset)
    if not preset:
        raise DoctorError(
            f"{repository}: not in the local hub cache, and {problem}",
            "check the id and the network, or name a folder or a preset (gemma-doctor presets)",
        )
    remark = f"{repository}: not in the local hub cache, and {problem}; this is the configuration of preset {preset}"
    return _Source(repository, "hub id", presets.load(preset), preset=preset, remarks=(remark,))


def read_config(path: Path) -> dict[str, Any]:
    """A published config.json.

    Raises:
        DoctorError: it cannot be read, is not JSON, or is no model's configuration.
    """
    try:
        mapping = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DoctorError(f"{path}: cannot be read ({error.strerror})", "name a config.json that can be read") from None
    except (ValueError, RecursionError) as error:
        raise DoctorError(f"{path}: not JSON ({error})", "name a model's config.json") from None
    if not isinstance(mapping, dict):
        raise DoctorError(
            f"{path}: no configuration, but a {type(mapping).__name__}", "a config.json is a mapping with a model_type"
        )
    if not isinstance(mapping.get("model_type"), str) or not mapping["model_type"]:
        raise DoctorError(
            f"{path}: no configuration of a model: it names no model_type", 'add e.g. "model_type": "gemma3_text"'
        )
    return mapping


def _weights(source: _Source, settings: Settings, has_demo: bool) -> tuple[str, str]:
    """Which weights, and the remark that a skeleton needs."""
    if settings.static:
        return "skeleton", ""
    if settings.weights == "skeleton":
        why = (
            "as --weights skeleton asks"
            if settings.origins.get("weights") != "default"
            else "unless --weights real asks"
        )
        return "skeleton", f"SKELETON: random weights, {why}"
    why, get = _missing_weights(source, has_demo)
    if not why:
        return "real", ""
    if settings.weights == "real" and source.kind == "hub id" and source.folder is not None:
        return "real", ""  # will be downloaded
    if settings.weights == "real":
        raise DoctorError(f"--weights real: {source.name}: {why}", get)
    return "skeleton", skeleton_remark(why, get)


def _missing_weights(source: _Source, has_demo: bool) -> tuple[str, str]:
    """Why there are no weights on this machine, and what would get them; empty if there are."""
    if has_demo:
        return ("", "") if demo.installed() else ("the demo extra is not installed", demo.INSTALL)
    if source.folder is not None and has_safetensors(source.folder):
        return "", ""
    if source.kind == "preset":
        return "a preset has none", f"gemma-doctor check {presets.hub_id(source.preset)} --weights real"
    if source.kind == "config file":
        return "a config.json alone has none", "name a folder with config.json and model.safetensors"
    if source.folder is None:
        return "there are none on this machine", f"hf download {source.name}"
    if any(source.folder.glob("*.bin")):
        return (
            "there are only pickled ones, which are never read",
            "load them where you trust them and save_pretrained() with safetensors",
        )
    if source.kind == "hub id":
        return "there are none on this machine", f"gemma-doctor check {source.name} --weights real"
    return "the folder holds no model.safetensors", "name a folder with config.json and model.safetensors"
