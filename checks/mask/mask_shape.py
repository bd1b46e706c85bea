"""Each mask has one row per query and one column per key that the kernel received.

What it proves
    For every 4-D mask that reached the attention function: batch 1 or b, heads 1 or h, as many rows as queries, at
    least as many columns as keys in that very layer. (Older releases hand over a longer mask and cut it inside the
    function; that is allowed, and said.) Where there is no mask and there are several queries, a causal model's kernel
    is told to be causal.

Why it matters
    The sliding and the full layers of one step see different numbers of keys. A mask that was sized for the other kind,
    or that broadcasts where it should not, moves the window or switches it off.

How to fix
    Size the mask by the keys of its own layer kind: what the cache layer returns, not what it has seen.

Known limits
    Nothing is said about which cells are open. That a kernel which is told to be causal is so is taken on trust.

References
    transformers pull requests 35681 and 48280: masks and keys of sliding layers that disagreed.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.check import check, nothing_there
from gemma_doctor.evidence import KernelCall, MaskFacts, Trace
from gemma_doctor.finding import Examined, Finding, Severity, Sighting

OPEN = "nothing blocks the future"


@check()
def mask_shape(trace: Trace) -> Iterator[Finding | Examined]:
    """Masks fit the queries and the keys of their own layer."""
    wrong: dict[str, Sighting] = {}
    masks = longer = unmasked = 0
    for one, step, total, call, raised in trace.attempted_calls():
        if call.mask is None:
            fault = _without_mask(call) if trace.causal else None
            unmasked += fault is not None
        elif call.mask.form in ("padding", "block") and not raised:
            continue
        else:
            masks += 1
            longer += not raised and len(call.mask.shape) == 4 and call.mask.shape[3] > call.key_shape[2]
            fault = _broke(call, call.mask) if raised else _misfit(call, call.mask)
        if fault:
            title, observed, expected = fault
            boundary = f"first in {one.place(step, total)}, layer {call.layer}"
            wrong.setdefault(title, Sighting(observed, expected, boundary)).at(one.name, call.layer)
    if not masks and not unmasked:
        raise nothing_there(trace, "no pass used a 4-D mask")
    for title, seen in wrong.items():
        do = "size the mask by the keys that this layer's cache returns"
        yield seen.finding(title, Severity.ERROR, "pass a mask, or is_causal=True" if title == OPEN else do)
    said = f"{masks:,} masks{'' if wrong else ' fit their queries and keys'}"
    said += f" ({longer:,} longer, cut by the kernel)" if longer else ""
    yield Examined(masks + unmasked, said + (f", {unmasked:,} open calls without one" if unmasked else ""))


def _without_mask(call: KernelCall) -> tuple[str, str, str] | None:
    """(title, observed, expected), or None. A single query is the last token: all keys are its past."""
    if call.causal_when_none or call.query_shape[2] == 1:
        return None
    observed = f"{call.kernel}: no mask, and the kernel is not told to be causal ({call.query_shape[2]} queries)"
    return OPEN, observed, "a mask, or a causal kernel"


def _broke(call: KernelCall, mask: MaskFacts) -> tuple[str, str, str] | None:
    """As `_misfit`, for the call in which a forward ended: there a longer mask was not cut by the kernel."""
    fault = _misfit(call, mask)
    if fault is None and mask.form == "dense" and mask.shape[3] > call.key_shape[2]:
        observed = f"{list(mask.shape)}, and the kernel raised"
        return "the mask has more columns than there are keys", observed, f"[..., {call.key_shape[2]}]"
    return fault


def _misfit(call: KernelCall, mask: MaskFacts) -> tuple[str, str, str] | None:
    """(title, observed, expected), or None."""
    batch, heads, queries, _ = call.query_shape
    keys = call.key_shape[2]
    title = ""
    if len(mask.shape) != 4:
        title = f"the mask has {len(mask.shape)} axes"
    elif mask.shape[0] not in (1, batch):
        title = "the mask has another batch size"
    elif mask.shape[1] not in (1, heads):
        title = "the mask has another number of heads"
    elif mask.shape[2] != queries:
        title = "the mask has another number of rows than there are queries"
    elif mask.shape[3] < keys:
        title = "the mask has fewer columns than there are keys"
    expected = f"[1 or {batch}, 1 or {heads}, {queries}, {keys} or more]"
    return (title, str(list(mask.shape)), expected) if title else None
