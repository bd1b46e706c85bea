"""Puts other arithmetic into the norms of a text decoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch

from gemma_doctor.capture.model_facts import epsilon_attribute, norm_modules
from gemma_doctor.loading import Patient
from gemma_doctor.undone import attributes_set

WIDTH = 64  # of a probe, for norms that name none
TOLERANCE = 0.02  # of rounding in half precision; the other forms lie much further away


@dataclass(frozen=True)
class Norm:
    """How a norm computes.

    Attributes:
        module: it.
        centred: the mean is taken off first.
        one_plus: it multiplies by 1 + weight.
    """

    module: Any
    centred: bool
    one_plus: bool

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """What it puts out, computed in the dtype of its input."""
        weight, bias = (getattr(self.module, name, None) for name in ("weight", "bias"))
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        eps = getattr(self.module, epsilon_attribute(self.module))
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        if weight is not None:
            x = x * (weight.to(x.dtype) + int(self.one_plus))
        return x if bias is None else x + bias.to(x.dtype)

    def of_weight_alone(self) -> Norm:
        return replace(self, one_plus=False)


def norms_of(patient: Patient) -> list[Norm]:
    """The norms of all models, but for those that compute something else than Norm can say."""
    found = (_form(module) for model in patient.models for _, module in norm_modules(model))
    return [one for one in found if one is not None]


@torch.no_grad()
def _form(module: Any) -> Norm | None:
    if not epsilon_attribute(module):
        return None
    weight = getattr(module, "weight", None)
    shape = tuple(weight.shape) if weight is not None and weight.ndim else (WIDTH,)
    probe = torch.linspace(-1, 2, math.prod(shape)).reshape(1, 1, *shape)
    probe = probe.to(weight) if weight is not None else probe
    try:
        wanted = module(probe).float()
    except Exception:  # whatever a family calls a norm: one that takes something else is left alone
        return None
    forms = (Norm(module, *form) for form in product((False, True), repeat=2))
    return next((one for one in forms if torch.allclose(one(probe.float()), wanted, TOLERANCE, TOLERANCE)), None)


@contextmanager
def norms_computed(norms: list[Norm], compute: Callable[[Norm, torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Let norms put out something else.

    Args:
        norms: which.
        compute: from the norm and what it is fed to what it puts out instead, in any dtype.
    """

    def computing(norm: Norm) -> Callable[..., torch.Tensor]:
        def change(_module: Any, args: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
            return compute(norm, args[0]).to(output.dtype)

        return change

    with ExitStack() as stack:
        for one in norms:
            stack.callback(one.module.register_forward_hook(computing(one)).remove)
        yield


@contextmanager
def epsilons_changed(patient: Patient, change: Callable[[float], float]) -> Iterator[None]:
    """Let all norms run with another epsilon."""
    norms = [module for model in patient.models for _, module in norm_modules(model)]
    named = [(module, name) for module in norms if (name := epsilon_attribute(module))]
    with attributes_set([(module, name, change(getattr(module, name))) for module, name in named]):
        yield
