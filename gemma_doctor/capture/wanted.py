"""Which queries of a recorded forward are read out: (columns fed before it, columns after it) -> their columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Wanted = Callable[[int, int], Sequence[int]]

EVERY = 16  # a cache can go wrong later as well


def decode_steps(start: int, total: int) -> range:
    """The queries of everything that is fed to a cache."""
    return range(start, total) if start else range(0)


def around(edge: int) -> Wanted:
    """The decode steps that end next to total length `edge`, and every 16th."""

    def wanted(start: int, total: int) -> range:
        near = edge - 1 <= total <= edge + 2 or total % EVERY == 0
        return range(start, total) if start and near else range(0)

    return wanted


def some_rows(edge: int, last: int) -> Wanted:
    """Of a prefill the first rows, those around the edge, and the `last` ones; later all."""

    def wanted(start: int, total: int) -> tuple[int, ...]:
        if start:
            return tuple(range(start, total))
        some = {0, 1, edge // 2, edge - 2, edge - 1, edge, edge + 1, 3 * edge // 2, *range(total - last, total)}
        return tuple(sorted(row for row in some if 0 <= row < total))

    return wanted
