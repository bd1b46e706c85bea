"""From a mask tensor, as the kernel received it, to MaskFacts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gemma_doctor.evidence import Bools, Ints, MaskFacts, frozen


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def mask_facts(mask: Any) -> MaskFacts | None:
    """Facts of one mask.

    Args:
        mask: None, a tensor of shape (b, h, q, k) or (b, k), or a backend's own mask object.
    """
    if mask is None:
        return None
    if not isinstance(mask, torch.Tensor):
        form = "block" if type(mask).__name__ == "BlockMask" else "other"
        return MaskFacts(form, "", tuple(getattr(mask, "shape", ())))
    if mask.dim() != 4:
        return MaskFacts("padding" if mask.dim() == 2 else "other", dtype_name(mask.dtype), tuple(mask.shape))
    return _dense(mask.detach())


def readable(mask: torch.Tensor) -> torch.Tensor:
    """Cells of a 4-D mask that may be read: True in a bool one, above half of the lowest number in an additive one."""
    return mask > torch.finfo(mask.dtype).min / 2 if mask.is_floating_point() else mask != 0


def _dense(mask: torch.Tensor) -> MaskFacts:
    highest = None
    between = nans = 0
    open_cells = readable(mask)  # not those with NaN
    if mask.is_floating_point():
        between = int(((mask != 0) & open_cells).sum())
        nans = int(mask.isnan().sum())
    if mask.dtype != torch.bool and mask.numel():
        highest = float(mask.max())
    cells: Bools = open_cells.cpu().numpy()
    first, count = _extent(cells)
    return MaskFacts(
        form="dense",
        dtype=dtype_name(mask.dtype),
        shape=tuple(mask.shape),
        bits=frozen(np.packbits(cells, axis=-1)),
        first=frozen(first),
        count=frozen(count),
        highest=highest,
        between=between,
        nans=nans,
    )


def _extent(cells: Bools) -> tuple[Ints, Ints]:
    """First readable column and number of them, per row; -1 and 0 for an empty row."""
    count: Ints = cells.sum(axis=-1, dtype=np.int64)
    if cells.shape[-1] == 0:
        return np.full(count.shape, -1, dtype=np.int64), count
    return np.where(count > 0, cells.argmax(axis=-1), -1).astype(np.int64), count
