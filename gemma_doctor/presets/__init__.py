"""Published configurations, shipped as data: everything works offline. See SOURCES.md for where each one is from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from gemma_doctor import evidence, published
from gemma_doctor.errors import DoctorError, suggest

# Every other preset is google/<name>.
OTHER_HUB_IDS = {
    "c4ai-command-r7b-12-2024": "CohereLabs/c4ai-command-r7b-12-2024",
    "gemma-3-12b-it-text": "OpenPipe/gemma-3-12b-it-text-only",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "llama-3.1-8b-instruct": "meta-llama/Llama-3.1-8B-Instruct",
    "mistral-7b-instruct-v0.3": "mistralai/Mistral-7B-Instruct-v0.3",
    "mistral-7b-v0.1": "mistralai/Mistral-7B-v0.1",
    "mixtral-8x7b-v0.1": "mistralai/Mixtral-8x7B-v0.1",
    "olmo-3.1-32b-instruct": "allenai/Olmo-3.1-32B-Instruct",
    "phi-3-mini-4k-instruct": "microsoft/Phi-3-mini-4k-instruct",
    "qwen2.5-3b-instruct": "Qwen/Qwen2.5-3B-Instruct",
    "qwen2.5-7b-instruct": "Qwen/Qwen2.5-7B-Instruct",
    "starcoder2-7b": "bigcode/starcoder2-7b",
}


@dataclass(frozen=True)
class Summary:
    """One preset in words, for a table. Fields that the published file does not write read "not written"."""

    name: str
    family: str
    layers: str
    window: str
    pattern: str


@cache
def names() -> tuple[str, ...]:
    """All presets, sorted."""
    entries = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".json") for name in entries if name.endswith(".json")))


def load(name: str) -> dict[str, Any]:
    """A preset's published config.json, a new mapping at every call.

    Raises:
        DoctorError: there is no such preset.
    """
    if name not in names():
        raise DoctorError(f"there is no preset {name!r}{suggest(name, names())}", "gemma-doctor presets lists them all")
    mapping: dict[str, Any] = json.loads(files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return mapping


def hub_id(name: str) -> str:
    """The hub repository in which a preset's configuration was published."""
    return OTHER_HUB_IDS.get(name, f"google/{name}")


def for_hub_id(repository: str) -> str | None:
    """The preset published as `repository` (the hub ignores case), or None."""
    wanted = repository.casefold()
    return next((name for name in names() if hub_id(name).casefold() == wanted), None)


def summary(name: str) -> Summary:
    """What `gemma-doctor presets` shows of one preset.

    Raises:
        DoctorError: there is no such preset.
    """
    facts = published.read(load(name), f"preset {name}")
    return Summary(
        name=name,
        family=facts.family,
        layers=_written(facts.layers),
        window=_window(facts),
        pattern=_pattern(facts.layer_kinds),
    )


def _written(value: object) -> str:
    return "not written" if value is None else str(value)


def _window(facts: evidence.ConfigFacts) -> str:
    if facts.window is None:
        return "not written"
    if facts.window.value is None:
        return "none"
    return f"{facts.window.value}{' (off)' if facts.switched_off else ''}"


def _pattern(kinds: tuple[str, ...] | None) -> str:
    """The shortest period of the layer kinds, e.g. "5 sliding, 1 full"."""
    if kinds is None:
        return "not written"
    period = next(p for p in range(1, len(kinds) + 1) if kinds == (kinds[:p] * len(kinds))[: len(kinds)])
    words: list[str] = []
    runs: list[int] = []
    for kind in kinds[:period]:
        word = kind.removesuffix("_attention")
        if words and words[-1] == word:
            runs[-1] += 1
        else:
            words.append(word)
            runs.append(1)
    if len(words) == 1:
        return f"all {words[0]}"
    return ", ".join(f"{run} {word}" for run, word in zip(runs, words, strict=True))
