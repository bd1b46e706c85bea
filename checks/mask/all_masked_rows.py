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

from gemma_doctor.check import check, nothing_there
from gemma_doctor.evidence import Forward, Ints, KernelCall, MaskFacts, Trace
from gemma_doctor.finding import Examined, Finding, Severity, Sighting, counted

EMPTY = "a real token has no key to read"


@check()
def all_masked_rows(trace: Trace) -> Iterator[Finding | Examined]:
    """Every real query can read at least one key."""
    seen: dict[str, Sighting] = {}
    masks = pads = bad = 0
    risky: set[str] = set()
    for one, step, forward, call in trace.calls():
        if call.mask is None or call.mask.form != "dense" or call.mask.shape[2] != call.query_shape[2]:
            continue
        masks += 1
        real, pad = _empty_rows(forward, call, call.mask)
        bad, pads = bad + len(real), max(pads, len(pad))
        if len(pad) and trace.device != "cpu" and call.kernel != "eager":
            risky.add(call.kernel)
        if len(real):
            cell = f"row {real[0, 0]}, column {real[0, 1]}"
            boundary = f"first in {one.place(step, forward.total)}, layer {call.layer}: {cell}"
            first = Sighting(f"{len(real)} in one mask", "0: every token sees at least itself", boundary)
            seen.setdefault(EMPTY, first).at(one.name, call.layer)
    if not masks:
        raise nothing_there(trace, "no pass used a 4-D mask")
    for title, sighting in seen.items():
        do = "check how the padding mask and the window are combined, and the column offset of the cache"
        yield sighting.finding(
            title, Severity.ERROR, do, observed=f"{counted(bad, 'fully masked row')} of real queries"
        )
    if risky:
        yield _pad_rows_at_risk(trace.device, pads, risky)
    harmless = f"{pads} pad rows at most in one mask" + (" (harmless on cpu)" if trace.device == "cpu" else "")
    yield Examined(masks, f"{masks:,} masks: {bad} empty rows of real queries, {harmless}")


def _empty_rows(forward: Forward, call: KernelCall, mask: MaskFacts) -> tuple[Ints, Ints]:
    """Real and pad queries for which some head can read none of the keys handed over: (row, column) each."""
    assert mask.first is not None and mask.count is not None
    queries = call.query_shape[2]
    is_real = forward.real[:, -queries:]
    nothing = (mask.count == 0) | (mask.first >= call.key_shape[2])
    empty = np.broadcast_to(nothing.any(axis=1), is_real.shape)
    offset = (0, forward.first_query(call))
    return np.argwhere(empty & is_real) + offset, np.argwhere(empty & ~is_real) + offset


def _pad_rows_at_risk(device: str, pads: int, kernels: set[str]) -> Finding:
    return Finding(
        title=f"rows of pad queries are fully masked on {device}",
        severity=Severity.NOTE,
        observed=f"up to {pads} pad rows in one mask, kernel {', '.join(sorted(kernels))}",
        expected="harmless as long as nothing reads those rows; some kernels return NaN for them",
        do="if NaN shows up in half precision, look at the pad rows first",
    )
