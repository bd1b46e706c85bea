"""Which token does each key in a cache belong to? Answered by matching key vectors, not by counting."""

from __future__ import annotations

import numpy as np
import torch

from gemma_doctor.evidence import EMPTY_SLOT, UNRECOGNISED, Ints, frozen

# Distance below which two key vectors are the same key, relative to the reference's typical length. Between routes the
# same key differs by rounding only (1e-6 in float32, 1e-2 in bfloat16); the same token one position on is turned by
# one radian in its fastest pair, which leaves distances of tenths.
SAME_KEY = 0.05


def recognise(keys: torch.Tensor, reference: torch.Tensor) -> Ints:
    """Absolute position of every key.

    Args:
        keys: as handed to the kernel, shape (k, features).
        reference: keys of the reference route for positions 0 .. T-1, same layer, shape (T, features).

    Returns:
        Shape (k,); UNRECOGNISED where no reference key is near, or several are; EMPTY_SLOT where nothing was written
        (all zeros).
    """
    distance = torch.cdist(keys.float(), reference.float())
    same = distance <= SAME_KEY * reference.float().norm(dim=1).median()
    # one that is near several could be any of them
    position = torch.where(same.sum(dim=1) == 1, distance.argmin(dim=1), UNRECOGNISED)
    position = torch.where((keys == 0).all(dim=1), EMPTY_SLOT, position)
    return frozen(position.cpu().numpy().astype(np.int64))
