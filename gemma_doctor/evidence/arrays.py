"""Arrays and names that all evidence is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

SLIDING = "sliding_attention"
FULL = "full_attention"

# Instead of the position of a key's token:
UNRECOGNISED = -1  # its vector is near those of several tokens
FOREIGN = -3  # its vector is near none that this run handed to the cache
EMPTY_SLOT = -2  # nothing was ever written there


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy of `array` that cannot be written to."""
    copy = np.array(array, copy=True)
    copy.flags.writeable = False
    return copy
