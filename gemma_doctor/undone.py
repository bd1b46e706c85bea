"""Changes that are undone whatever happens: what was there is recorded first, then changed inside a `try`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_NONE_OF_ITS_OWN = object()


@contextmanager
def attributes_set(changes: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Let attributes have other values for a while, each change as (owner, name, value)."""
    before = [getattr(owner, name) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name, _), value in zip(changes, before, strict=True):
            setattr(owner, name, value)


@contextmanager
def tensors_set(changes: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Iterator[None]:
    """Let tensors hold other numbers for a while, each change as (tensor, numbers); they stay the same objects."""
    import torch

    before = [tensor.detach().clone() for tensor, _ in changes]
    try:
        with torch.no_grad():
            for tensor, numbers in changes:
                tensor.copy_(numbers)
        yield
    finally:
        with torch.no_grad():
            for (tensor, _), numbers in zip(changes, before, strict=True):
                tensor.copy_(numbers)


@contextmanager
def method_replaced(owner: Any, name: str, method: Any) -> Iterator[None]:
    """Let an object or a class have another method for a while; then its own, or that of its class, shows again."""
    before = vars(owner).get(name, _NONE_OF_ITS_OWN)
    try:
        setattr(owner, name, method)
        yield
    finally:
        if before is not _NONE_OF_ITS_OWN:
            setattr(owner, name, before)
        elif name in vars(owner):
            delattr(owner, name)
