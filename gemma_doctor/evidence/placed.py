"""Readings, with what their rows and columns stand for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gemma_doctor.evidence.arrays import FULL, SLIDING, Bools, Floats32, Ints
from gemma_doctor.evidence.calls import KernelCall
from gemma_doctor.evidence.running import Forward, Pass, Trace


@dataclass(frozen=True)
class PlacedReading:
    """What some queries of one call read.

    Attributes:
        one, step, forward, call: where.
        window: W in force in this layer, None in full layers.
        queries: columns of the sequence that the rows stand for, shape (q,).
        weights, outputs: shape (b, query heads, q, k), and (b, q, query heads * head_dim).
        columns: of the sequence: the token that each key is, or should be where it was not recognised, shape (b, k).
        empty: slots of the cache that hold nothing, shape (b, k).
        real: no pad, shape (b, columns), as long as any of `columns`.
        judged: rows of real queries without NaN, shape (b, q).
    """

    one: Pass
    step: int
    forward: Forward
    call: KernelCall
    window: int | None
    queries: Ints
    weights: Floats32
    outputs: Floats32
    columns: Ints
    empty: Bools
    real: Bools
    judged: Bools


def placed_readings(trace: Trace) -> Iterator[PlacedReading]:
    """Every reading of a sliding or a full layer."""
    for one in trace.passes:
        for step, forward, real in one.steps():
            for call in forward.calls:
                if call.reading is not None and trace.layer_kinds.get(call.layer) in (SLIDING, FULL):
                    yield _placed(one, step, forward, call, real, trace.window(one, call.layer))


def _placed(one: Pass, step: int, forward: Forward, call: KernelCall, real: Bools, window: int | None) -> PlacedReading:
    assert call.reading is not None
    queries, weights = call.reading.queries, call.reading.weights
    columns, empty = forward.key_columns(call)
    return PlacedReading(
        one=one,
        step=step,
        forward=forward,
        call=call,
        window=window,
        queries=queries,
        weights=weights,
        outputs=call.reading.outputs,
        columns=columns,
        empty=empty,
        real=np.pad(real, ((0, 0), (0, max(int(columns.max()) + 1 - forward.total, 0)))),
        judged=real[:, queries] & np.isfinite(call.reading.outputs).all(axis=2) & ~np.isnan(weights).any(axis=(1, 3)),
    )
