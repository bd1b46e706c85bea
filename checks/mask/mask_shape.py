"""Each mask has one row per query and one column per key that the kernel received.

What it proves
    For every 4-D mask that reached the attention function: batch 1 or b, heads 1 or h, as many rows as queries, at
    least as many columns as keys in that very layer. (Older releases hand over a longer mask and cut it inside the
    function; that is allowed, and said.)

Why it matters
    The sliding and the full layers of one step see different numbers of keys. A mask that was sized for the other kind,
    or that broadcasts where it should not, moves the window or switches it off.

How to fix
    Size the mask by the keys of its own layer kind: what the cache layer returns, not what it has seen.

Known limits
    Nothing is said about which cells are open. Where the library passes no mask there is nothing to look at.

References
    transformers pull requests 35681 and 48280: masks and keys of sliding layers that disagreed.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.check import NotApplicable, check
from gemma_doctor.evidence import KernelCall, MaskFacts, Trace
from gemma_doctor.finding import Examined, Finding, Severity, Sighting


@check()
def mask_shape(trace: Trace) -> Iterator[Finding | Examined]:
    """Masks fit the queries and the keys of their own layer."""
    wrong: dict[str, Sighting] = {}
    examined = longer = 0
    for one, step, forward, call in trace.calls():
        if call.mask is None or call.mask.form in ("padding", "block"):
            continue
        examined += 1
        longer += len(call.mask.shape) == 4 and call.mask.shape[3] > call.key_shape[2]
        title = _fault(call, call.mask)
        if title:
            boundary = f"first in pass {one.name!r}, step {step}, total length {forward.total}, layer {call.layer}"
            seen = wrong.setdefault(title, Sighting(str(list(call.mask.shape)), _expected(call), boundary))
            seen.at(one.name, call.layer)
    if not examined:
        raise NotApplicable("no pass used a 4-D mask")
    for title, seen in wrong.items():
        yield Finding(
            title=title,
            severity=Severity.ERROR,
            where=seen.where,
            observed=seen.observed,
            expected=seen.expected,
            do="size the mask by the keys that this layer's cache returns",
        )
    cut = f" ({longer:,} longer, cut by the kernel)" if longer else ""
    yield Examined(examined, f"{examined:,} masks{'' if wrong else ' fit their queries and keys'}{cut}")


def _expected(call: KernelCall) -> str:
    batch, heads, queries, _ = call.query_shape
    return f"[1 or {batch}, 1 or {heads}, {queries}, {call.key_shape[2]} or more]"


def _fault(call: KernelCall, mask: MaskFacts) -> str | None:
    batch, heads, queries, _ = call.query_shape
    if len(mask.shape) != 4:
        return f"the mask has {len(mask.shape)} axes"
    if mask.shape[0] not in (1, batch):
        return "the mask has another batch size"
    if mask.shape[1] not in (1, heads):
        return "the mask has another number of heads"
    if mask.shape[2] != queries:
        return "the mask has another number of rows than there are queries"
    if mask.shape[3] < call.key_shape[2]:
        return "the mask has fewer columns than there are keys"
    return None
