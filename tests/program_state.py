"""A picture of everything in a program that an examination could leave changed, to be compared before and after."""

from __future__ import annotations

import gc
import logging
import os
import random
import sys
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import transformers

FUNCTIONS = "functions of "
CONTAINERS = (dict, list, set, tuple)


def picture(model: torch.nn.Module, tokenizer: Any) -> dict[str, Any]:
    """Of a model, whatever wraps it, of its tokenizer, and of the process. Pictures that are equal look the same."""
    gc.collect()
    return {**process(), **weights(model), **modules(model), **settings(tokenizer)}


def process() -> dict[str, Any]:
    library = logging.getLogger("transformers")
    numbers = np.random.get_state()
    return {
        "random": random.getstate(),
        "numpy": (numbers[0], numbers[1].tobytes(), *numbers[2:]),  # type: ignore[union-attr, index]
        "torch": torch.get_rng_state().numpy().tobytes(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),
        "autograd": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": torch.is_autocast_enabled("cpu"),
        "determinism": torch.are_deterministic_algorithms_enabled(),
        "environment": dict(os.environ),
        "warnings": list(warnings.filters),
        "logging": (library.level, list(library.handlers), library.propagate),
        "bars": transformers.utils.logging.is_progress_bar_enabled(),
        "streams": (sys.stdout, sys.stderr),
        **functions(),
    }


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What is not as it was. Modules of the library that were imported meanwhile are no change."""
    new = {name for name in after.keys() - before.keys() if name.startswith(FUNCTIONS)}
    return sorted(name for name in (before.keys() | after.keys()) - new if before.get(name) != after.get(name))


def functions() -> dict[str, Any]:
    """What the library calls for attention and masks: globals of its files, and entries of its registries."""
    found: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers.") and module is not None:
            own = {key: value for key, value in vars(module).items() if "attention" in key or "mask" in key}
            found[FUNCTIONS + name] = {key: id(value) for key, value in own.items() if callable(value)}
            registry = vars(module).get("ALL_ATTENTION_FUNCTIONS")
            if isinstance(registry, Mapping):
                found[f"{FUNCTIONS}{name}, registry"] = [(key, id(registry[key])) for key in registry]
    return found


def weights(model: torch.nn.Module) -> dict[str, Any]:
    """Bit by bit, with what autograd knows of them."""
    return {
        **{f"parameter {name}": (id(one), one.requires_grad, *_bits(one)) for name, one in model.named_parameters()},
        **{f"gradient {name}": (id(one.grad), *_bits(one.grad)) for name, one in model.named_parameters()},
        **{f"buffer {name}": (id(one), *_bits(one)) for name, one in model.named_buffers()},
    }


def _bits(tensor: torch.Tensor | None) -> tuple[Any, ...]:
    if tensor is None or tensor.is_meta:
        return (None,)
    return tensor.dtype, str(tensor.device), tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes()


def modules(model: torch.nn.Module) -> dict[str, Any]:
    """Every attribute of every module: flags, hooks, caches, configurations, what was compiled or replaced."""
    return {f"module {name}": _attributes(module) for name, module in model.named_modules()}


def settings(tokenizer: Any) -> dict[str, Any]:
    backend = tokenizer.backend_tokenizer
    return {
        "tokenizer": _attributes(tokenizer),
        "backend": (backend.truncation, backend.padding),
        "side": (tokenizer.padding_side, tokenizer.truncation_side),
        "pad, template, longest": (tokenizer.pad_token, tokenizer.chat_template, tokenizer.model_max_length),
    }


def _attributes(owner: Any) -> dict[str, Any]:
    return {name: _value(value) for name, value in vars(owner).items()}


def _value(value: Any) -> Any:
    if isinstance(value, (transformers.PretrainedConfig, transformers.GenerationConfig)):
        return id(value), {name: _value(inner) for name, inner in vars(value).items()}
    if isinstance(value, Mapping):
        return id(value), [(_key(key), _value(inner)) for key, inner in value.items()]
    if isinstance(value, CONTAINERS):
        return id(value), [_value(inner) for inner in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else id(value)


def _key(key: Any) -> Any:
    return key if isinstance(key, (str, int)) else id(key)
