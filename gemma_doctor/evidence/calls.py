"""Calls of the attention function: the mask, the keys, and what was read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemma_doctor.evidence.arrays import FOREIGN, UNRECOGNISED, Bools, Bytes, Floats32, Ints


@dataclass(frozen=True)
class MaskFacts:
    """A mask as the kernel received it.

    Attributes:
        form: "dense" (4-D tensor), "padding" (2-D, flash), "block" (flex BlockMask), "other".
        dtype: torch dtype name, "" where it has none.
        shape: as received.
        bits: dense masks: True = may be read, packed along the key axis, shape (b, h, q, ceil(k / 8)); else None.
        first, count: dense masks: first readable column (-1 in an empty row) and number of readable columns per row,
            shape (b, h, q); else None.
        highest: largest value of a numeric mask, None for bool.
        between: how many values are neither 0 nor at or below finfo(dtype).min / 2 (0 for bool).
        nans: how many values are NaN.
    """

    form: str
    dtype: str
    shape: tuple[int, ...]
    bits: Bytes | None = None
    first: Ints | None = None
    count: Ints | None = None
    highest: float | None = None
    between: int = 0
    nans: int = 0

    def readable(self) -> Bools:
        """Unpacked: True where the key may be read, shape (b, h, q, k). Only for dense masks."""
        if self.bits is None:
            raise ValueError(f"a {self.form} mask has no cells")
        return np.unpackbits(self.bits, axis=-1, count=self.shape[-1]).astype(bool)


@dataclass(frozen=True)
class Reading:
    """What some queries of one kernel call really read, measured in that very kernel (see capture/readout.py).

    A weight of 0 may be underflow: a reading proves what *is* read; the mask says what *may* be read.

    Attributes:
        queries: columns of the sequence that the rows stand for, ascending, shape (q,).
        weights: attention weights, shape (b, query heads, q, k). Rows sum to 1, or to less where the kernel has sinks.
        outputs: what the kernel made of the values with them, shape (b, q, query heads * head_dim).
    """

    queries: Ints
    weights: Floats32
    outputs: Floats32


@dataclass(frozen=True)
class KernelCall:
    """One call of the attention function, as it was made.

    Attributes:
        layer: index.
        kernel: "eager", "sdpa", "flash_attention_2", "flex_attention", ...
        query_shape: (b, heads, q, head_dim). The queries are the last q columns of the forward: all that were fed,
            but where a layer needs its last queries only (Gemma 4's layers with shared keys, since 5.2x).
        key_shape: (b, kv_heads, k, head_dim).
        query_dtype: torch dtype name.
        mask: None when the library passed None (causality is then left to the kernel).
        causal_when_none: what the kernel does without a mask: True = causal, False = reads all keys.
        window_argument: `sliding_window` handed to the function, None if none.
        key_positions: for chosen calls: the token that each key column holds, recognised by its key vector among those
            that its row handed to the cache, in this layer or, where it reuses another's keys, in that one; or
            UNRECOGNISED, FOREIGN or EMPTY_SLOT; shape (b, k); else None.
        reading: for chosen calls: what some of its queries read.
    """

    layer: int
    kernel: str
    query_shape: tuple[int, int, int, int]
    key_shape: tuple[int, int, int, int]
    query_dtype: str
    mask: MaskFacts | None
    causal_when_none: bool
    window_argument: int | None
    key_positions: Ints | None = None
    reading: Reading | None = None

    @property
    def unrecognised(self) -> int:
        """Key columns that were looked at and hold no token that could be told."""
        held = self.key_positions
        return 0 if held is None else int(((held == UNRECOGNISED) | (held == FOREIGN)).sum())

    def unmasked(self, rows: Ints) -> Bools:
        """What some of the queries read without a mask, shape (rows, k).

        A kernel that is told to be causal counts queries and keys from the first of each; another reads all keys.
        """
        if not self.causal_when_none:
            return np.ones((len(rows), self.key_shape[2]), dtype=bool)
        cells: Bools = np.arange(self.key_shape[2]) <= rows[:, None]
        return cells
