"""Resolves a SUBJECT to its published configuration and says which weights will be examined. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemma_doctor import adapters, demo, gguf_config, hub, presets
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import Config, ConfigFacts
from gemma_doctor.expectations import expectations, lay_over, origin
from gemma_doctor.gguf_file import GgufFile
from gemma_doctor.published import read, text_part
from gemma_doctor.real_weights import lack_of
from gemma_doctor.settings import Settings
from gemma_doctor.sources import Source, locate

IN_MEMORY = "model in memory"
RECURRENT_KINDS = ("conv", "hybrid", "linear_attention", "mamba", "recurrent")
LAYERS_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
MOST_LAYERS = 10_000
DEEPEST = 50
LONGEST_NAME = 64


@dataclass(frozen=True)
class Subject:
    """What is examined, before anything heavy is loaded.

    Attributes:
        name: for headlines, as the user gave it ("gemma-3-270m", "./my-gemma").
        kind: "preset", "folder", "config file", "GGUF file", "adapter", "hub id", IN_MEMORY.
        published: the whole published mapping, overrides applied.
        config: evidence read from it, with the expectations.
        folder: where tokenizer and weights lie, None if there is no such folder.
        weights: "real" or "skeleton": what a full run will examine.
        remarks: headline lines, e.g. why this is a skeleton and what would get the weights.
        demo: the real weights come from the packaged Gemma 3 270M (see demo.py), not from `folder`.
        overridden: the run lays keys over what is published.
        repository: from which weights that are not on this machine would come.
        adapter: what is merged into the weights of the base, whose configuration `published` is.
        gguf: the file that config, tokenizer and weights come from.
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
    repository: hub.Repository | None = None
    adapter: adapters.Adapter | None = None
    gguf: GgufFile | None = None


def resolve(settings: Settings) -> Subject:
    """Find the subject that the settings name.

    Neither torch nor transformers is imported. The hub is asked only for an id that the local hub cache does not hold.

    Raises:
        DoctorError: no such subject, no usable configuration, no decoder, or `weights` is "real" and there are none.
    """
    source = locate(settings)
    published = _laid_over(source, settings.overrides)
    reason = not_a_decoder(published)
    if reason:
        raise DoctorError(
            f"not a decoder that this tool examines: {source.name} is {reason}",
            "gemma-doctor presets lists models that are",
        )
    facts = _facts(source, published, overridden=bool(settings.overrides))
    comes_from = origin(facts, source.preset, published)
    unchanged = bool(source.preset) and published == presets.load(source.preset)
    has_demo = source.preset == demo.PRESET and source.repository is None
    weights, remark = _weights(source, settings, has_demo)
    return Subject(
        name=source.name,
        kind=source.kind,
        published=published,
        config=Config(
            facts, expectations(facts, comes_from.comparable, unchanged, settings.expect), base=comes_from.base
        ),
        folder=source.folder,
        weights=weights,
        remarks=(*source.remarks, *([remark] if remark else [])),
        demo=has_demo and weights == "real",
        overridden=bool(settings.overrides),
        repository=source.repository,
        adapter=source.adapter,
        gguf=source.gguf,
    )


def _facts(source: Source, published: Mapping[str, Any], overridden: bool) -> ConfigFacts:
    """What is published, with the names that its keys have where it was written."""
    more = " with overrides" if overridden else ""
    if source.gguf is not None:
        return gguf_config.facts(source.gguf, published, f"the GGUF file{more}")
    is_preset = source.folder is None and source.preset
    return read(published, f"{f'preset {source.preset}' if is_preset else 'published config.json'}{more}")


def _laid_over(source: Source, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the run's overrides, once more a possible one.

    Raises:
        DoctorError: it is not.
    """
    published = lay_over(source.mapping, overrides)
    text, prefix = text_part(published)
    if _depth(published) > DEEPEST:
        raise DoctorError(f"{source.name}: nested too deeply", "a configuration has a few levels")
    for key, value in (("model_type", published["model_type"]), (f"{prefix}model_type", text.get("model_type"))):
        if not isinstance(value, str | None) or len(value or "") > LONGEST_NAME:
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


def skeleton_remark(why: str, get: str) -> str:
    """The headline of a skeleton that nobody asked for: why it is one, and what would get the real weights."""
    return f"SKELETON: random weights ({why}); to get real ones: {get}"


def _weights(source: Source, settings: Settings, has_demo: bool) -> tuple[str, str]:
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
    lack = lack_of(source, has_demo)
    if lack is None or (lack.by_download and settings.weights == "real"):
        return "real", ""
    if settings.weights == "real":
        raise DoctorError(f"--weights real: {source.name}: {lack.why}", lack.get)
    return "skeleton", skeleton_remark(lack.why, lack.get)
