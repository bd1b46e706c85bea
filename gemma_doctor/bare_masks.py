"""Masks that no model made: from an array, or a function that makes them, to what the checks judge. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gemma_doctor.checks.mask.mask_pattern import mask_pattern
from gemma_doctor.evidence import FULL, SLIDING, Forward, Pass, frozen
from gemma_doctor.finding import Finding, Severity, counted
from gemma_doctor.testing import config_facts, dense_mask, kernel_call, run_check, trace

if TYPE_CHECKING:
    from gemma_doctor.evidence import Bools

# (query_length, key_length, past_length) -> mask
MaskFunction = Callable[[int, int, int], Any]
Meaning = Literal["readable", "blocked"]

# Scores are some hundreds at most, so this leaves no weight; -10,000 is the least that was ever in use (BERT's).
BLOCKS = -1e4
WITHOUT_WINDOW = 8  # where there is no edge to be below, at and above
BEYOND = 3  # tokens past the edge


@dataclass(frozen=True)
class BareMask:
    """One mask and the tokens that it is for.

    Attributes:
        cells: True = may be read, shape (b or 1, h, q, k).
        real: True for real tokens, False for pads, shape (b, columns), all up to the last query.
        name: where it comes from, in words.
    """

    cells: Bools
    real: Bools
    name: str

    @classmethod
    def of(cls, mask: Any, past: int | None, real: Any, true_means: Meaning, name: str) -> BareMask:
        """From what a caller has.

        Raises:
            AssertionError: the mask is neither a bool nor an additive one.
            ValueError: what was given does not fit.
        """
        cells = cells_of(mask, true_means, name)
        batch, _, queries, keys = cells.shape
        past = keys - queries if past is None else past
        if past < 0:
            raise ValueError(f"{name}: {queries} queries, {keys} keys, and a past that is not known; say past_length")
        columns = past + queries
        whole = np.ones((1, columns), bool) if real is None else np.atleast_2d(_array(real)).astype(bool)
        if whole.ndim != 2 or whole.shape[1] != columns or (len(whole) != batch and min(len(whole), batch) != 1):
            raise ValueError(f"real has shape {whole.shape}; it must be ({batch}, {columns}), past and queries")
        return cls(cells, np.broadcast_to(whole, (max(batch, len(whole)), columns)), name)

    @property
    def past(self) -> int:
        """Tokens fed before these queries."""
        return int(self.real.shape[1]) - int(self.cells.shape[2])

    def empty_rows(self) -> list[tuple[int, int]]:
        """Real queries that may read nothing, in some head: (sequence, column) of each."""
        tokens = self.cells[..., : self.real.shape[1]]  # a static cache has empty slots after them
        has_keys = np.all(np.any(tokens, axis=-1), axis=1)
        empty = ~has_keys & self.real[:, self.past :]
        return [(int(sequence), int(query) + self.past) for sequence, query in np.argwhere(empty)]

    def first_key(self) -> int:
        """The token that column 0 stands for."""
        return max(int(self.real.shape[1]) - int(self.cells.shape[3]), 0)

    def wrong_cells(self, window: int | None) -> list[Finding]:
        """What mask-pattern says of this mask: as if one layer had received it, on top of what was fed before."""
        batch, (_, heads, queries, keys) = len(self.real), self.cells.shape
        call = kernel_call(0, dense_mask(self.cells), batch, queries, keys, query_shape=(batch, heads, queries, 1))
        before = Forward(0, self.past, frozen(self.real[:, : self.past]), None, True, (), ())
        now = Forward(self.past, queries, frozen(self.real[:, self.past :]), None, True, (call,), ())
        one = Pass(self.name, window, self.past or queries, not self.real.all(), (before, now))
        facts = config_facts(window=window, kinds=(SLIDING if window else FULL,))
        found = run_check(mask_pattern, trace=trace(one, facts=facts)).findings
        return [finding for finding in found if finding.severity is Severity.ERROR]


def around_the_edge(
    function: MaskFunction, window: int | None, true_means: Meaning, drops_keys: bool
) -> Iterator[BareMask]:
    """A function's masks at lengths below, at and above W: prefills, decode steps, chunks on top of others.

    Raises:
        AssertionError: it returns another number of queries or keys than it was asked for.
    """
    edge = window or WITHOUT_WINDOW
    lengths = sorted({1, max(edge - 1, 1), edge, edge + 1, edge + BEYOND})
    calls = [(length, 0) for length in lengths]
    calls += [(fed, past) for past in lengths for fed in (1, BEYOND, edge + 1)]
    for fed, past in calls:
        held = {past, min(past, edge - 1)} if drops_keys and window else {past}
        for keys in sorted(kept + fed for kept in held):
            name = f"mask_function({fed}, {keys}, {past})"
            one = BareMask.of(function(fed, keys, past), past, None, true_means, name)
            if one.cells.shape[2:] != (fed, keys):
                made = " x ".join(map(str, one.cells.shape[2:]))
                raise AssertionError(f"{name} returns a mask of {made}\n  expected  {fed} x {keys}, queries x keys")
            yield one


def cells_of(mask: Any, true_means: Meaning, name: str) -> Bools:
    """What may be read, shape (b, h, q, k).

    Raises:
        AssertionError: it is neither a bool nor an additive mask.
        ValueError: it has another shape.
    """
    if true_means not in ("readable", "blocked"):
        raise ValueError(f"true_means is {true_means!r}; it must be 'readable' or 'blocked'")
    if mask is None:
        raise ValueError(f"{name} is None: there is no mask here; the kernel was told is_causal, or reads everything")
    values = _array(mask)
    if values.ndim not in (2, 3, 4) or 0 in values.shape:
        raise ValueError(f"{name} has shape {values.shape}; it must be (q, k), (b, q, k) or (b, h, q, k)")
    readable = _readable(values, true_means, name)
    queries, keys = readable.shape[-2:]
    batch = readable.shape[0] if readable.ndim > 2 else 1
    cells: Bools = readable.reshape(batch, -1, queries, keys)
    return cells


def _readable(values: Any, true_means: Meaning, name: str) -> Any:
    if values.dtype == bool:
        return values if true_means == "readable" else ~values
    if not np.issubdtype(values.dtype, np.floating):
        raise AssertionError(f"{name} is neither bool nor float\n  observed  {values.dtype}\n  expected  bool or float")
    wrong = values[~((values == 0) | (values <= BLOCKS))]  # NaN too
    if wrong.size:
        raise AssertionError(
            f"{name} is no additive mask\n"
            f"  observed  {counted(wrong.size, 'value')} such as {wrong.flat[0]:g}\n"
            f"  expected  0 where a key may be read, {BLOCKS:,.0f} or below where it may not"
        )
    return values == 0


def _array(given: Any) -> Any:
    """As an array of numpy, which has no bfloat16."""
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        given = given.float() if given.is_floating_point() else given
    return np.asarray(given)
