"""Which token does each key of a call belong to? Answered by matching key vectors, not by counting."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from gemma_doctor.evidence import EMPTY_SLOT, FOREIGN, UNRECOGNISED, Ints, frozen

# Distance below which two key vectors are the same key, relative to their typical length. A key that was stored and
# handed over again is the same but for the rounding of what stores it; the same token one position on is turned by one
# radian in its fastest pair, which leaves distances of tenths.
SAME_KEY = 0.05

# A vector is remembered as so many random projections, which keep distances well enough: keeping the keys themselves
# would double the cache.
PROJECTIONS = 16


class KeyBook:
    """The keys that each layer handed to its cache, by row of the batch and token."""

    def __init__(self) -> None:
        self._known: dict[int, torch.Tensor] = {}  # shape (b, tokens, PROJECTIONS)

    def store(self, layer: int, keys: torch.Tensor, start: int) -> None:
        """Remember the keys of the tokens from `start` on; what was known of them and of later ones is forgotten.

        Args:
            keys: as handed to the cache, shape (b, kv heads, tokens, head_dim).
        """
        new = _projected(keys)
        known = self._known.pop(layer, new[:, :0])
        if start <= known.shape[1]:  # else tokens between were not seen, and nothing can be told any more
            self._known[layer] = torch.cat([known[:, :start], new], dim=1)

    def recognise(self, layer: int, keys: torch.Tensor, first: int) -> Ints | None:
        """The token of each key column.

        Args:
            keys: as handed to the kernel, shape (b, kv heads, k, head_dim).
            first: token that column 0 should hold. A column that holds what it should is not looked for elsewhere: the
                same token has the same key everywhere in layers without rotation.

        Returns:
            Shape (b, k); FOREIGN where no key that this row stored is near, UNRECOGNISED where several are or the key
            is not finite, EMPTY_SLOT where nothing was written (all zeros). None for layers that stored none.
        """
        if layer not in self._known:
            return None
        pairs = zip(self._known[layer], _projected(keys), strict=True)
        positions = torch.stack([_positions(held, known, first) for known, held in pairs])
        return frozen(positions.cpu().numpy().astype(np.int64))


def _positions(held: torch.Tensor, known: torch.Tensor, first: int) -> torch.Tensor:
    """Of one row: held of shape (k, PROJECTIONS), known of shape (tokens, PROJECTIONS)."""
    lengths = known.norm(dim=1)
    near = SAME_KEY * float(lengths[lengths.isfinite()].median())  # NaN if there are none
    due = first + torch.arange(len(held), device=held.device)
    as_due = (held - known[due.clamp(max=len(known) - 1)]).norm(dim=1) <= near
    as_due &= due < len(known)
    position = torch.where(as_due, due, UNRECOGNISED)
    # a pad whose row of the embedding is zero has such a key itself
    position[(held == 0).all(dim=1) & ~as_due] = EMPTY_SLOT
    lost = position == UNRECOGNISED
    if lost.any():
        same = torch.cdist(held[lost], known) <= near
        count = same.sum(dim=1)
        position[lost] = torch.where(count == 1, same.int().argmax(dim=1), UNRECOGNISED)
        # NaN and infinity are like nothing, themselves included
        position[lost] = torch.where((count == 0) & held[lost].isfinite().all(dim=1), FOREIGN, position[lost])
    return position


def _projected(keys: torch.Tensor) -> torch.Tensor:
    """Shape (b, tokens, PROJECTIONS)."""
    flat = keys.detach().transpose(1, 2).flatten(2).float()
    return flat @ _projection(flat.shape[2], flat.device)


@lru_cache(maxsize=8)
def _projection(features: int, device: torch.device) -> torch.Tensor:
    return torch.randn(features, PROJECTIONS, generator=torch.Generator().manual_seed(0)).to(device)
