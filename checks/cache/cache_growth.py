"""The cache grows as its layers promise, and keeps no memory that it does not use.

What it proves
    In every forward of all passes: a full layer holds one key for every token, and a sliding one stops at W-1; layers
    that use another's keys hold none. While tokens are generated, the storage behind the keys and values grows with
    them and no further, and that of layers with a fixed number of slots not at all.

Why it matters
    A sliding layer that keeps everything, or keeps its keys as a view of everything, answers rightly and needs memory
    for the whole context: the window was there to save just that, and long generations run out of memory.

How to fix
    DynamicCache(config=model.config), which is what generate() builds by itself; a cache of your own should store a
    copy (clone()) of the keys that it keeps, not a view of those that it cut them from.

Known limits
    After a long prompt the keys of a sliding layer are a view of all of it until the next step, and then of one key
    more than they are: both are normal. Only what grows over several steps is a fault. Layers that record for a
    rollback keep more on purpose and are not judged. Layers that read what they keep are left to mask-pattern until
    that is mended. What the allocator holds besides is not seen.

References
    transformers before 4.56 generates with a cache that keeps every key, wherever the configuration does not name a
    hybrid one (seen with Mistral and Gemma 3 270M in 4.53); 5.5.4 does so with Gemma 4 26B and 31B, whose layers share
    no keys. The warning is true there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from gemma_doctor.check import check, nothing_there
from gemma_doctor.evidence import SLIDING, CacheLayer, Pass, Trace
from gemma_doctor.finding import Examined, Finding, Severity, Sighting, counted

MORE = "the cache keeps keys that no query can read"
SHARING = "a layer that uses another's keys stores its own"
LEAK = "the cache keeps memory behind its keys, and more with every step"
HOW = {
    MORE: "costs memory only: DynamicCache(config=model.config) keeps W-1 keys in sliding layers",
    SHARING: "costs memory only: let generate() build the cache",
    LEAK: "store a copy (clone()) of the keys and values that are kept, not a view of those that they were cut from",
}
MEGABYTE = 2**20


class _Fault(NamedTuple):
    """One fault of one layer, and the step and the total length at which it shows first."""

    title: str
    layer: int
    observed: str
    expected: str
    step: int
    total: int


@check()
def cache_growth(trace: Trace) -> Iterator[Finding | Examined]:
    """Full layers grow by one key a token, sliding layers stop at W-1, and no memory is kept behind them."""
    sizes = [forward.cache for _, _, forward in trace.forwards() if forward.cache]
    if not sizes:
        raise nothing_there(trace, "no pass used a cache")
    seen: dict[str, Sighting] = {}
    read = _read_beyond(trace)
    for one in trace.passes:
        for fault in (*_kept(trace, one, read), *_leaks(one)):
            first = Sighting(fault.observed, fault.expected, f"first in {one.place(fault.step, fault.total)}")
            seen.setdefault(fault.title, first).at(one.name, fault.layer)
    for title, sighting in seen.items():
        yield sighting.finding(title, Severity.WARNING, HOW[title])
    layers = counted(max(map(len, sizes)), "cache layer")
    held = "" if seen else f" {_held(trace)}, nothing kept behind;"
    largest = max(sum(layer.allocated for layer in cache) for cache in sizes) / MEGABYTE
    more = f"; keys beyond the window are read in {counted(len(read), 'layer')}: see mask-pattern" if read else ""
    yield Examined(len(sizes), f"{len(sizes)} forwards x {layers}:{held} {largest:,.1f} MB at most{more}")


def _read_beyond(trace: Trace) -> set[int]:
    """Layers that read keys from before their window out of the cache: what they keep costs more than memory."""
    windows = (
        (call.layer, forward.reach(call), trace.window(one, call.layer))
        for one, _, forward, call in trace.calls()
        if forward.start
    )
    return {layer for layer, reach, window in windows if window is not None and reach is not None and reach > window}


def _kept(trace: Trace, one: Pass, read: set[int]) -> Iterator[_Fault]:
    """Layers that hold more keys than they should, and do not read them."""
    for step, forward in enumerate(one.forwards):
        for layer in forward.cache:
            due = _due(trace, one, layer, forward.total)
            if layer.layer in trace.shares_kv_with and layer.stored:
                yield _Fault(SHARING, layer.layer, f"{layer.stored:,} keys", "0 keys", step, forward.total)
            elif due is not None and layer.stored > due and layer.layer not in read:
                yield _Fault(MORE, layer.layer, f"{layer.stored:,} keys", f"{due:,} keys", step, forward.total)


def _due(trace: Trace, one: Pass, layer: CacheLayer, total: int) -> int | None:
    """Keys that a layer should hold after `total` tokens; None where more are held on purpose."""
    if layer.static or layer.recording:
        return None
    window = trace.window(one, layer.layer)
    return total if window is None else min(total, window - 1)


def _leaks(one: Pass) -> Iterator[_Fault]:
    """Layers behind whose keys ever more memory is kept while tokens are generated."""
    behind: dict[int, list[tuple[int, int, int]]] = {}
    for step, forward in enumerate(one.forwards):
        for layer in forward.cache if forward.is_decode_step else ():
            if not layer.recording:
                used = 0 if layer.static else layer.bytes  # slots are there from the beginning
                behind.setdefault(layer.layer, []).append((layer.allocated - used, step, forward.total))
    for index, steps in behind.items():
        grown = [(now[0] - before[0], now) for before, now in itertools.pairwise(steps) if now[0] > before[0]]
        # once is normal: the first key that a sliding layer drops stays behind until the next step
        if len(grown) > 1 and steps[-1][0] == max(steps)[0]:
            (_, first), (growth, _) = grown[0], grown[-1]
            observed = f"{growth:,} bytes more with a step, {steps[-1][0]:,} after the last"
            yield _Fault(LEAK, index, observed, "no more than the key of one step", *first[1:])


def _held(trace: Trace) -> str:
    """What was seen, by the kinds of layer that there are."""
    layers = [layer for _, _, forward in trace.forwards() for layer in forward.cache]
    sliding = {layer.layer for layer in layers if trace.layer_kinds.get(layer.layer) == SLIDING and not layer.static}
    full = {layer.layer for layer in layers if not layer.static} - sliding
    said = {
        "full layers +1 a token": full,
        "sliding layers W-1 keys": sliding,
        "a fixed number of slots": {layer.layer for layer in layers if layer.static},
    }
    return ", ".join(words for words, found in said.items() if found)
