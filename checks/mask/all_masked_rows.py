"""No real token is left without a key to read.

What it proves
    In every 4-D mask that reached the attention function, each row of a real query has at least one readable column
    among the keys handed over. Rows of pad queries may be empty; they are counted.

Why it matters
    Softmax over nothing is NaN in some kernels and the mean over all values, future and pads included, in others. Both
    are wrong; the second is silent.

How to fix
    Every query must at least see itself. Look at how padding and window are combined, and at the column offset once the
    cache has dropped keys.

Known limits
    NaN from an empty row did not show on a CPU in any of 27 combinations measured: that is why the mask is inspected
    and not the output. Empty rows of pad queries are normal since transformers 5 (a left pad of 7 gives 7).

References
    torch issue 41508 (NaN from fully masked rows); transformers `sdpa_mask`, which leaves pad rows empty.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemma_doctor.check import NotApplicable, check
from gemma_doctor.evidence import Bools, KernelCall, MaskFacts, Trace
from gemma_doctor.finding import Examined, Finding, Severity, Sighting


@check()
def all_masked_rows(trace: Trace) -> Iterator[Finding | Examined]:
    """Every real query can read at least one key."""
    seen = Sighting("", "0: every token sees at least itself", "")
    masks = pads = bad = 0
    risky: set[str] = set()
    for one, step, forward, call in trace.calls():
        queries = call.query_shape[2]
        if call.mask is None or call.mask.form != "dense" or call.mask.shape[2] != queries:
            continue
        masks += 1
        is_real = forward.real[:, -queries:]
        empty = _empty_rows(call, call.mask, is_real)
        real = empty & is_real
        pad_rows = int((empty & ~is_real).sum())
        pads = max(pads, pad_rows)
        if pad_rows and trace.device != "cpu" and call.kernel != "eager":
            risky.add(call.kernel)
        if real.any():
            row, query = (int(axis[0]) for axis in np.nonzero(real))
            seen.boundary = seen.boundary or (
                f"first in pass {one.name!r}, step {step}, layer {call.layer}: "
                f"row {row}, column {forward.total - queries + query}"
            )
            seen.at(one.name, call.layer)
            bad += int(real.sum())
    if not masks:
        raise NotApplicable("no pass used a 4-D mask")
    if bad:
        yield Finding(
            title="a real token has no key to read",
            severity=Severity.ERROR,
            where=seen.where,
            observed=f"{bad} fully masked rows of real queries",
            expected=seen.expected,
            do="check how the padding mask and the window are combined, and the column offset of the cache",
        )
    if risky:
        yield Finding(
            title=f"rows of pad queries are fully masked on {trace.device}",
            severity=Severity.NOTE,
            observed=f"up to {pads} pad rows in one mask, kernel {', '.join(sorted(risky))}",
            expected="harmless as long as nothing reads those rows; some kernels return NaN for them",
            do="if NaN shows up in half precision, look at the pad rows first",
        )
    harmless = f"{pads} pad rows at most in one mask" + (" (harmless on cpu)" if trace.device == "cpu" else "")
    yield Examined(masks, f"{masks:,} masks: {bad} empty rows of real queries, {harmless}")


def _empty_rows(call: KernelCall, mask: MaskFacts, is_real: Bools) -> Bools:
    """Rows of the mask, shape (b, q), in which some head can read none of the keys handed over."""
    assert mask.first is not None and mask.count is not None
    nothing = (mask.count == 0) | (mask.first >= call.key_shape[2])
    rows: Bools = np.broadcast_to(nothing.any(axis=1), is_real.shape)
    return rows
