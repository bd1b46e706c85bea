"""Attention functions: where they are looked up, and how to stand in for one."""

from __future__ import annotations

import functools
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from gemma_doctor.compat.configs import text_config
from gemma_doctor.undone import attributes_set

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


class CannotWatch(Exception):
    """A model's attention function is not where the library's own models have it."""


def attention_function_wrapped(modeling_module: str, name: str, wrap: Wrap) -> AbstractContextManager[None]:
    """Wrap the attention function that a modeling file calls, in place and under its own name.

    Under another name the library would build another mask. Eager functions are globals of the modeling file; all
    others stand in its ALL_ATTENTION_FUNCTIONS: a dict up to 4.51, later a mapping over a class-wide one.

    Args:
        modeling_module: dotted name of the module that defines the attention class.
        name: "eager", "sdpa", ...
        wrap: from the function in use to the one to use instead.

    Raises:
        CannotWatch: on entering; the modeling file calls no function of that name.
    """
    module = sys.modules[modeling_module]
    return _global_wrapped(module, wrap) if name == "eager" else _entry_wrapped(module, name, wrap)


@contextmanager
def _global_wrapped(module: Any, wrap: Wrap) -> Iterator[None]:
    original = getattr(module, "eager_attention_forward", None)
    if original is None:
        raise CannotWatch(f"{module.__name__} has no attention function that could be watched")
    with attributes_set([(module, "eager_attention_forward", wrap(original))]):
        yield


@contextmanager
def _entry_wrapped(module: Any, name: str, wrap: Wrap) -> Iterator[None]:
    functions = getattr(module, "ALL_ATTENTION_FUNCTIONS", None)
    if functions is None or name not in functions:
        raise CannotWatch(f"{module.__name__} has no attention function {name!r} that could be watched")
    original = functions[name]
    had_override = name in getattr(functions, "_local_mapping", functions)
    try:
        functions[name] = wrap(original)
        yield
    finally:
        if had_override:
            functions[name] = original
        else:
            functions.pop(name, None)


def attention_backend(model: Any) -> str:
    """The attention implementation that a model's text decoder is set to."""
    return str(text_config(model)._attn_implementation)


def other_backends(model: Any, name: str) -> tuple[str, ...]:
    """Backends that a model could use on any device instead of `name`, as far as its class allows them."""
    allowed = ("eager", "sdpa") if getattr(model, "_supports_sdpa", False) else ("eager",)
    return tuple(one for one in allowed if one != name)


@contextmanager
def attention_backend_set(model: Any, name: str) -> Iterator[None]:
    """Let a model compute with another attention implementation for a while.

    Since 4.48 the implementation is looked up in the config at every call, so setting it there is enough.
    """
    with attributes_set([(text_config(model), "_attn_implementation", name)]):
        yield


def has_backend(model: Any, name: str) -> bool:
    """The library has "flex_attention" or "flash_attention_2" for a model's family, on whatever machine."""
    # flash attention's flag has one of its names up to 4.53, the other from 4.54 on
    flags = {"flex_attention": ("_supports_flex_attn",)}.get(name, ("_supports_flash_attn", "_supports_flash_attn_2"))
    return any(getattr(model, flag, False) for flag in flags)


def why_not_backend(model: Any, name: str, device: str) -> str:
    """Why a model cannot compute with "flex_attention" or "flash_attention_2" on a device; "" if it can."""
    from transformers.utils import is_flash_attn_2_available

    if not has_backend(model, name):
        return f"the library has no {name} for this family"
    if device == "cpu":
        return f"{name} needs a GPU"
    if name == "flash_attention_2" and not is_flash_attn_2_available():
        return "the flash_attn package is not installed"
    return ""


def flash_window(window: int) -> int:
    """How many tokens a query would see through flash attention, itself included, for a window of so many.

    Flash attention's own argument counts the keys on either side of the query: right is W-1. Since 4.56 a function
    makes the arguments; before, they stand in the text of another one, and are W.

    Raises:
        LookupError: this release is built otherwise.
    """
    from transformers import modeling_flash_attention_utils as library

    make = getattr(library, "_process_flash_attention_kwargs", None)
    if make is None:
        if '"window_size": (sliding_window, sliding_window)' in inspect.getsource(library):
            return window + 1
        raise LookupError("where flash attention's window is made is not known in this release")
    given: dict[str, Any] = {"is_causal": True, "sliding_window": window, "supports_mapping": defaultdict(lambda: True)}
    for name, parameter in inspect.signature(make).parameters.items():
        if name.endswith("_length"):
            given[name] = 4 * window
        elif parameter.default is inspect.Parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            given.setdefault(name, None)
    return int(make(**given)["window_size"][0]) + 1


@contextmanager
def flash_window_too_wide() -> Iterator[None]:
    """Let flash attention be handed a window that is one larger, as up to 4.55; there it is already."""
    from transformers import modeling_flash_attention_utils as library

    make = getattr(library, "_process_flash_attention_kwargs", None)
    if make is None:
        yield
        return

    @functools.wraps(make)
    def wider(*args: Any, **kwargs: Any) -> dict[str, Any]:
        made: dict[str, Any] = make(*args, **kwargs)
        return {**made, "window_size": tuple(side + 1 for side in made["window_size"])}

    with attributes_set([(library, "_process_flash_attention_kwargs", wider)]):
        yield
