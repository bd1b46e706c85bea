"""Configurations on their way into a file and back: which keys a class reads, and what is left of its values."""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Mapping
from typing import Any

# What releases set, rename or leave out by themselves, or that decides nothing that a forward computes.
BOOKKEEPING = (
    "_name_or_path",
    "architectures",
    "auto_map",
    "cache_implementation",
    "dtype",
    "id2label",
    "label2id",
    "model_type",
    "quantization_config",
    "return_dict",
    "torch_dtype",
    "transformers_version",
    "use_cache",
)
# Values that releases correct on purpose: newer ones take Gemma 1's "gelu", published by mistake, for the tanh form.
CORRECTED = {("gemma", "hidden_act", "gelu"): "gelu_pytorch_tanh"}


def is_bookkeeping(key: str) -> bool:
    """A key whose value no check need compare."""
    return key in BOOKKEEPING or key.startswith("_")


def plain(config: Any) -> dict[str, Any]:
    """A config object's values as JSON holds them: whole numbers as keys become text, tuples lists."""
    values: dict[str, Any] = json.loads(json.dumps(config.to_dict(), default=str))
    return values


def carried(config: Any) -> dict[str, Any]:
    """A config object's values, class defaults too, as a file would write them.

    `output_attentions` and the like are left out: objects keep them under another name, so that no class reads them.
    """
    from transformers import PretrainedConfig

    base = PretrainedConfig()
    unread = plain(base).keys() - known_keys(base)
    values = {key: value for key, value in plain(config).items() if key not in unread}
    nested = {key: one for key, one in vars(config).items() if key in values and isinstance(one, PretrainedConfig)}
    return values | {key: carried(one) for key, one in nested.items()}


def known_keys(config: Any) -> frozenset[str]:
    """Keys that a config object's class takes by name, under any name it gives them.

    Since 5.x classes are dataclasses; before, they name their keys in `__init__`, and the base class pops others.
    """
    from transformers import PretrainedConfig

    names = {*config.attribute_map, *config.attribute_map.values(), *vars(PretrainedConfig())}
    for parent in type(config).__mro__:
        if "__init__" in vars(parent):
            names |= inspect.signature(vars(parent)["__init__"]).parameters.keys()
        names |= vars(parent).get("__annotations__", {}).keys()
    return frozenset(names - {"self", "args", "kwargs", "super_kwargs"})


def corrected(config: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Published values, with those that this release corrects on purpose as it corrects them."""
    after = plain(config)
    found = {
        key: CORRECTED.get((config.model_type, key, value)) for key, value in values.items() if isinstance(value, str)
    }
    return {**values, **{key: value for key, value in found.items() if value is not None and after.get(key) == value}}


def saved_and_loaded(config: Any) -> Any:
    """The config object that comes back when `config` is saved into a folder and loaded from it.

    Raises:
        Exception: whatever the library raises at one or the other.
    """
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        return type(config).from_pretrained(folder, local_files_only=True)
