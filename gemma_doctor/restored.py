"""Everything that an examination touches in a program is put back, whatever happens.

That is the model (flags, hooks, attributes, buffers that a forward may write, configurations), the settings of the
tokenizer, and the process (generators of random numbers, torch's defaults, the library's switches, the environment).
The model's weights are nowhere written, so they are not copied.
"""

from __future__ import annotations

import copy
import os
import random
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from gemma_doctor import compat

# Examinations stand in for functions of the library while they run: two at a time would put back each other's.
_ONE_AT_A_TIME = threading.RLock()

# Of containers an object's attributes are copied and compared; all else is put back as it was, by identity.
CONTAINERS = (dict, list, set)
# Buffers up to so many bytes may be rewritten by a forward (rotary frequencies); larger ones are a quantiser's weights.
LARGEST_WRITTEN = 2**20


# --- objects ---------------------------------------------------------------------------------------------------------


@contextmanager
def attributes_restored(*owners: Any) -> Iterator[None]:
    """Every attribute of some objects is afterwards the object that it was, and its containers hold what they held."""
    before = [(owner, dict(vars(owner)), _contents(owner)) for owner in owners]
    try:
        yield
    finally:
        for owner, attributes, contents in before:
            _put_back(vars(owner), attributes)
            for container, content in contents:
                _refill(container, content)


def _contents(owner: Any) -> list[tuple[Any, Any]]:
    return [(value, copy.copy(value)) for value in vars(owner).values() if isinstance(value, CONTAINERS)]


def _put_back(mapping: dict[str, Any], before: dict[str, Any]) -> None:
    """As it was, in the same order; untouched where nothing has changed, since others may read it at this moment."""
    same = mapping.keys() == before.keys() and all(mapping[name] is before[name] for name in before)
    if not same:
        mapping.clear()
        mapping.update(before)


def _refill(container: Any, before: Any) -> None:
    if isinstance(container, dict):
        _put_back(container, before)
    elif isinstance(container, list):
        if len(container) != len(before) or any(a is not b for a, b in zip(container, before, strict=True)):
            container[:] = before
    elif container != before:
        container.clear()
        container |= before


# --- the model -------------------------------------------------------------------------------------------------------


@contextmanager
def at_rest(model: Any) -> Iterator[None]:
    """A model in eval mode, without gradients and uncompiled for a while; then in every respect as it was.

    Modules keep their flags, hooks, parameters and buffers in attributes and in dicts of those: both are put back.
    """
    modules = list(model.modules())
    weights = [one for one in model.parameters() if not one.is_inference()]  # those have no gradients, nor a flag
    needed_gradients = [weight.requires_grad for weight in weights]
    with ExitStack() as stack:
        stack.enter_context(attributes_restored(*modules, *compat.own_configs(model)))
        stack.enter_context(_numbers_restored(model))
        try:
            for module in modules:
                module.training = False  # not eval(): classes of users' own may merge weights in it
                compat.uncompile(module)  # hooks would be compiled with it
            for weight in weights:
                weight.requires_grad_(False)
            yield
        finally:
            for weight, needed in zip(weights, needed_gradients, strict=True):
                weight.requires_grad_(needed)


@contextmanager
def _numbers_restored(model: Any) -> Iterator[None]:
    written = [one for one in model.buffers() if not one.is_meta and one.nbytes <= LARGEST_WRITTEN]
    before = [one.detach().clone() for one in written]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, numbers in zip(written, before, strict=True):
                if not torch.equal(buffer, numbers):
                    buffer.copy_(numbers)


# --- the tokenizer ---------------------------------------------------------------------------------------------------


@contextmanager
def settings_kept(tokenizer: Any) -> Iterator[None]:
    """A tokenizer's padding, truncation, special tokens and template are afterwards what they were."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    truncation, padding = (getattr(backend, name, None) for name in ("truncation", "padding"))
    with attributes_restored(*([] if tokenizer is None else [tokenizer])):
        try:
            yield
        finally:
            if backend is not None and backend.truncation != truncation:
                backend.enable_truncation(**truncation) if truncation else backend.no_truncation()
            if backend is not None and backend.padding != padding:
                backend.enable_padding(**padding) if padding else backend.no_padding()


# --- the process -----------------------------------------------------------------------------------------------------


@contextmanager
def process_restored() -> Iterator[None]:
    """Plain float32 on the CPU, without autograd, autocast or the caller's defaults; then all of that as before.

    Several threads wait for each other.
    """
    with _ONE_AT_A_TIME, _process_restored():
        yield


@contextmanager
def _process_restored() -> Iterator[None]:
    environment = dict(os.environ)
    threads, dtype, precision = torch.get_num_threads(), torch.get_default_dtype(), torch.get_float32_matmul_precision()
    with ExitStack() as stack:
        stack.enter_context(_generators_restored())
        stack.enter_context(compat.switches_restored())
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.no_grad())
        for kind in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
            stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        try:
            torch.set_default_dtype(torch.float32)
            torch.set_float32_matmul_precision("highest")  # the noise floor is that of float32
            yield
        finally:
            torch.set_float32_matmul_precision(precision)
            torch.set_default_dtype(dtype)
            torch.set_num_threads(threads)
            if dict(os.environ) != environment:
                os.environ.clear()
                os.environ.update(environment)


@contextmanager
def _generators_restored() -> Iterator[None]:
    own, arrays, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        random.setstate(own)
        np.random.set_state(arrays)
        torch.set_rng_state(cpu)
        if gpus is not None:
            torch.cuda.set_rng_state_all(gpus)
