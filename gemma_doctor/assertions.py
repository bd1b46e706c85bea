"""Assertions for the tests of a decoder: on a report, or on a bare mask or the function that makes it, without a model.

    from gemma_doctor.assertions import assert_reads_window

    def test_my_mask():
        assert_reads_window(my_mask_function, window=512)

Cells are judged by the check mask-pattern, as those of a model are. Arrays of numpy and tensors of torch are taken
alike; torch itself is not imported.

A mask is of shape (q, k), (b, q, k) or (b, h, q, k), and of one of two kinds:
    bool: True = may be read, as `scaled_dot_product_attention` has it, or with `true_means="blocked"` the reverse, as
        `nn.MultiheadAttention` has it.
    float: added to the scores; 0 = may be read, and -10,000 or below (-inf too) = blocked.
The last query is the last token that was fed; the last key column is that token's too, unless there are more columns
than tokens (a static cache: the columns after it are empty slots).

A mask function is called as mask_function(query_length, key_length, past_length), all ints, with the tokens that were
fed before these queries as past_length, and returns a mask of query_length x key_length.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from gemma_doctor.bare_masks import (
    BEYOND,
    WITHOUT_WINDOW,
    BareMask,
    MaskFunction,
    Meaning,
    around_the_edge,
    cells_of,
)
from gemma_doctor.finding import Finding, counted

if TYPE_CHECKING:
    from gemma_doctor.finding import Report

__all__ = ["assert_grows_by_one", "assert_healthy", "assert_no_masked_row", "assert_reads_window"]


def assert_healthy(report: Report) -> None:
    """`gemma-doctor check` would return 0: nothing at or above `fail_on`, and the examination was made as demanded.

    Args:
        report: of `gemma_doctor.diagnose`.

    Raises:
        AssertionError: otherwise; it says what the text report says.
    """
    __tracebackhide__ = True
    if report.exit_code:
        from gemma_doctor.report import text

        raise AssertionError(f"\n{text.render(report)}")


def assert_no_masked_row(
    mask: Any, *, real: Any = None, past_length: int | None = None, true_means: Meaning = "readable"
) -> None:
    """Every real token may read at least one key: softmax over a row without any is NaN, or an even average.

    Args:
        mask: a mask (see above).
        real: True for real tokens, False for pads, shape (columns,) or (b, columns), columns = past_length + q. Rows of
            pads are free. None for no pads.
        past_length: tokens fed before these queries; None for k - q.
        true_means: what True says in a bool mask.

    Raises:
        AssertionError: a row is empty; or the mask is of neither kind.
        ValueError: the arguments do not fit each other.
    """
    __tracebackhide__ = True
    _require_rows(BareMask.of(mask, past_length, real, true_means, "the mask"))


def assert_reads_window(
    mask: Any | MaskFunction,
    window: int | None,
    *,
    real: Any = None,
    past_length: int | None = None,
    true_means: Meaning = "readable",
    drops_keys: bool = False,
) -> None:
    """Every query may read exactly the W keys up to itself: fewer only at the start, none later, and no pad.

    Args:
        mask: a mask, or a mask function (see above). A function is tried at lengths below, at and above W: in
            prefills, decode steps, and chunks that are fed on top of others.
        window: W; None for a layer that reads everything before it.
        real: True for real tokens, False for pads, shape (columns,) or (b, columns), columns = past_length + q. Pads
            count as columns of the window, and are not read. Not with a function.
        past_length: tokens fed before these queries, None for k - q. Say it for a cache that drops keys: whether one
            is dropped too early shows only then. Not with a function.
        true_means: what True says in a bool mask.
        drops_keys: also ask a function as a cache does that keeps W - 1 keys only: key_length is smaller than
            past_length + query_length then, and column 0 is not token 0.

    Raises:
        AssertionError: a cell is wrong, the first one is named; or the mask is of neither kind.
        ValueError: the arguments do not fit each other.
    """
    __tracebackhide__ = True
    window = _width(window)
    if not callable(mask):
        masks: Iterable[BareMask] = [BareMask.of(mask, past_length, real, true_means, "the mask")]
    elif real is not None or past_length is not None:
        raise ValueError("real and past_length belong to one mask; a function is asked for many")
    else:
        masks = around_the_edge(mask, window, true_means, drops_keys)
    for one in masks:
        _require_keys(one, window)
        _require_rows(one)
        for finding in one.wrong_cells(window):
            raise AssertionError(_in_lines(finding, one))


def assert_grows_by_one(
    masks: Iterable[Any] | MaskFunction, window: int | None = None, *, true_means: Meaning = "readable"
) -> None:
    """With each decode step one more key may be read, until there are W: the past neither stands still nor jumps.

    Args:
        masks: what the attention of one layer received in consecutive decode steps, in order, without pads; or a mask
            function, which is asked for the steps across the edge.
        window: W; None for a layer that reads everything before it.
        true_means: what True says in a bool mask.

    Raises:
        AssertionError: a step has another number of keys than the one before it leads to expect; or a mask is of
            neither kind.
        ValueError: fewer than two steps, or a mask with several queries.
    """
    __tracebackhide__ = True
    before: Any = None  # keys of each sequence and head, at the step before
    steps = 0
    for mask in _decode_steps(masks, window) if callable(masks) else masks:
        cells = cells_of(mask, true_means, f"decode step {steps}")
        if cells.shape[2] != 1:
            raise ValueError(f"decode step {steps} has {cells.shape[2]} queries; it should have one")
        now = cells.sum(axis=-1)
        if before is not None and before.shape != now.shape:
            said = f"{now.shape[:2]} sequences and heads, and {before.shape[:2]} at the step before"
            raise ValueError(f"decode step {steps} has {said}")
        for place, keys in np.ndenumerate(now):
            _require_growth(steps, None if before is None else int(before[place]), int(keys), window)
        before, steps = now, steps + 1
    if steps < 2:
        raise ValueError(f"{counted(steps, 'step')}; two are needed to see a growth")


def _decode_steps(function: MaskFunction, window: int | None) -> Iterable[Any]:
    edge = window or WITHOUT_WINDOW
    return (function(1, past + 1, past) for past in range(max(edge - BEYOND, 1), edge + BEYOND + 1))


def _require_growth(step: int, before: int | None, keys: int, window: int | None) -> None:
    __tracebackhide__ = True
    if before is None and (window is None or keys <= window):
        return
    due = window if window and (before is None or before >= window) else (before or 0) + 1
    if keys != due:
        after = f", after {before} at the step before" if before is not None else ""
        raise AssertionError(
            "the past does not grow by one\n"
            f"  where     decode step {step}\n"
            f"  observed  {counted(keys, 'key')} may be read{after}\n"
            f"  expected  {due}, " + ("the window" if due == window else "one more")
        )


def _require_rows(one: BareMask) -> None:
    __tracebackhide__ = True
    empty = one.empty_rows()
    if empty:
        sequence, row = empty[0]
        of_batch = f" of sequence {sequence}" if len(one.real) > 1 else ""
        raise AssertionError(
            "a real token has no key to read\n"
            f"  where     {one.name}, row {row}{of_batch}\n"
            f"  observed  0 of {counted(one.cells.shape[3], 'key')} may be read; so in {counted(len(empty), 'row')}\n"
            "  expected  1 or more: every token sees at least itself"
        )


def _require_keys(one: BareMask, window: int | None) -> None:
    """A mask without a column for a key that should be read belongs to a cache that dropped it."""
    __tracebackhide__ = True
    needed = max(one.past - window + 1, 0) if window else 0
    if one.first_key() > needed:
        raise AssertionError(
            "a key that should be read is held no more\n"
            f"  where     {one.name}, row {one.past}\n"
            f"  observed  {counted(one.cells.shape[3], 'column')}, the first is token {one.first_key()}\n"
            f"  expected  the first is token {needed}, or one before it"
        )


def _in_lines(finding: Finding, one: BareMask) -> str:
    observed = finding.observed.replace(f"; most in pass {one.name!r}: ", "; ").replace(" of one call", " in all")
    lines = [finding.title, f"  where     {one.name}", f"  observed  {observed}", f"  expected  {finding.expected}"]
    if finding.strip:
        lines += [f"  {finding.strip.caption}"]
        lines += [f"    expected  {finding.strip.expected}", f"    observed  {finding.strip.observed}"]
    return "\n".join([*lines, f"  do        {finding.do}"])


def _width(window: Any) -> int | None:
    """W as an int; numpy's are welcome."""
    try:
        width = None if window is None else operator.index(window)
    except TypeError:
        width = 0
    if isinstance(window, bool) or (width is not None and width < 1):
        raise ValueError(f"window is {window!r}; it must be an int of at least 1, or None")
    return width
