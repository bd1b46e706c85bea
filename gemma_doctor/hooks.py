"""Forward pre-hooks on parts of a patient's models, for the duration of a block."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gemma_doctor.capture.model_facts import attention_modules, text_decoder
from gemma_doctor.loading import Patient


def attention_of(patient: Patient) -> list[Any]:
    """All attention modules of the text decoders."""
    return [module for model in patient.models for module in attention_modules(model).values()]


def last_attention_modules(patient: Patient) -> list[Any]:
    """The last attention module of each model."""
    return [list(attention_modules(model).values())[-1] for model in patient.models]


def text_decoders(patient: Patient) -> list[Any]:
    return [text_decoder(model) for model in patient.models]


@contextlib.contextmanager
def hooked(modules: Iterable[Any], hook: Callable[..., Any]) -> Iterator[None]:
    """Register `hook(module, args, kwargs)` as a forward pre-hook of `modules`; removed at the end."""
    handles = [module.register_forward_pre_hook(hook, with_kwargs=True) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
