"""Who may read whom. Rules use operators only, so numpy arrays and torch tensors share them.

Reference: sliding window arXiv:2310.06825 (Mistral 7B).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from gemma_doctor.evidence import Bools, Ints


@dataclass(frozen=True)
class Rule:
    """Which key columns a query column may read; rules combine with &.

    Called with integer arrays of query and key positions (numpy or torch) that broadcast against each other, it
    returns booleans of their common shape.
    """

    reads: Callable[[Any, Any], Any]

    def __call__(self, query: Any, key: Any) -> Any:
        return self.reads(query, key)

    def __and__(self, other: Rule) -> Rule:
        return Rule(lambda query, key: self(query, key) & other(query, key))


causal = Rule(lambda query, key: key <= query)


def sliding(window: int) -> Rule:
    """The query and the window - 1 keys before it: 0 <= q - k < W."""
    return causal & Rule(lambda query, key: query - key < window)


def real_keys(real: Any) -> Rule:
    """No pads. `real` is True for real tokens, shape (..., columns); the batch axes come first in the result."""
    return Rule(lambda query, key: real[..., (query - query) + key])


def visible(window: int | None, real: Any) -> Rule:
    """What a layer should read: its window, or without one everything before, but no pads.

    Args:
        window: W, None for a full layer.
        real: True for real tokens, shape (..., columns).
    """
    return (sliding(window) if window else causal) & real_keys(real)


def positions(real: Bools) -> Ints:
    """Position of every token: the first real one of a row is 0, then +1 each. Pads, which are free, get 0.

    Args:
        real: True for real tokens, shape (rows, columns).
    """
    return np.where(real, np.cumsum(real, axis=-1) - 1, 0)
