"""Attention functions: where they are looked up, and how to stand in for one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from gemma_doctor.compat.configs import text_config

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
    module.eager_attention_forward = wrap(original)
    try:
        yield
    finally:
        module.eager_attention_forward = original


@contextmanager
def _entry_wrapped(module: Any, name: str, wrap: Wrap) -> Iterator[None]:
    functions = getattr(module, "ALL_ATTENTION_FUNCTIONS", None)
    if functions is None or name not in functions:
        raise CannotWatch(f"{module.__name__} has no attention function {name!r} that could be watched")
    original = functions[name]
    had_override = name in getattr(functions, "_local_mapping", functions)
    functions[name] = wrap(original)
    try:
        yield
    finally:
        if had_override:
            functions[name] = original
        else:
            del functions[name]


def attention_backend(model: Any) -> str:
    """The attention implementation that a model's text decoder is set to."""
    return str(text_config(model)._attn_implementation)


@contextmanager
def attention_backend_set(model: Any, name: str) -> Iterator[None]:
    """Let a model compute with another attention implementation for a while.

    Since 4.48 the implementation is looked up in the config at every call, so setting it there is enough.
    """
    config = text_config(model)
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before
