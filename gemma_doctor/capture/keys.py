"""Which token does each key in a cache belong to? Answered by matching key vectors, not by counting."""

from __future__ import annotations

import numpy as np
import torch

from gemma_doctor.evidence import Ints, frozen

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
        Shape (k,); -1 where no reference key is near (unused slots of a static cache, for instance).
    """
    distance = torch.cdist(keys.float(), reference.float())
    nearest, position = distance.min(dim=1)
    found = nearest <= SAME_KEY * reference.float().norm(dim=1).median()
    return frozen(torch.where(found, position, -1).cpu().numpy().astype(np.int64))
