"""The cache has seen every token, holds those that the next ones need, and hands the right ones over.

What it proves
    After every forward (prefill, each decode step before, at and after the window edge, a second turn, a padded batch,
    while streaming): each cache layer has seen exactly the columns that were fed; it holds what the next query needs
    (everything in full layers, W-1 keys in dynamic sliding layers, W slots in static ones, nothing in layers that
    share another's); and around the edge the keys handed to the kernel are recognised, one by one, as those of the
    tokens that the query should read.

Why it matters
    Positions and masks are computed from the length that the cache reports. A key that is dropped one step early, or a
    length taken from a sliding layer that stopped growing, changes every later token without an error.

How to fix
    Let the library build the cache from the config (`DynamicCache(config=...)`, or none at all); take the length from
    `get_seq_length()` of the cache, never from a key tensor of a sliding layer.

Known limits
    Keys are recognised in the first layer of each kind only, in passes of one row. More keys than needed behind a right
    mask cost memory and are a warning. Fixed-size caches of releases before 4.54 know no cumulative length.

References
    transformers issue 37574: the oldest key of the window was dropped one step early (4.43 to 4.51, fixed in 4.52.1).
    transformers issues 37269 and 39593: a default cache without room for the next token (4.50 to 4.52).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemma_doctor.check import NotApplicable, check
from gemma_doctor.evidence import EMPTY_SLOT, SLIDING, UNRECOGNISED, Bools, CacheLayer, Forward, KernelCall, Pass, Trace
from gemma_doctor.finding import Examined, Finding, Severity, Sighting, Strip

LENGTH = "a cache layer reports a wrong length"
MISSING = "the cache holds fewer keys than the window needs"
HANDED = "the kernel receives fewer keys than the query should read"
OTHERS = "the cache hands over other keys than those of the window"
MORE = "a sliding layer keeps keys that no query can read"
SHARING = "a layer that shares another's keys stores its own"
MARKS = 32


@check(decides_before="positions")
def past_key_length(trace: Trace) -> Iterator[Finding | Examined]:
    """The cache counts every token and hands over the keys of the window."""
    seen: dict[str, Sighting] = {}
    strip: Strip | None = None
    known = ""
    steps = layers = 0
    for one, step, forward in trace.forwards():
        if not forward.cache:
            continue
        steps += 1
        layers = max(layers, len(forward.cache))
        for title, layer, observed, expected in _faults(trace, one, forward):
            boundary = f"first in pass {one.name!r}, step {step}, total length {forward.total}{_at_edge(one, forward)}"
            seen.setdefault(title, Sighting(observed, expected, boundary)).at(one.name, layer)
        for call in forward.calls:
            if strip is None and (strip := _strip(trace, one, forward, call)):
                known = _known(trace, one, forward, call)
    if not steps:
        raise NotApplicable("no pass used a cache")
    for title, sighting in seen.items():
        wasteful = title in (MORE, SHARING)
        yield Finding(
            title=title,
            severity=Severity.WARNING if wasteful else Severity.ERROR,
            where=sighting.where,
            observed=sighting.observed,
            expected=sighting.expected,
            strip=strip if title == OTHERS else None,
            known=known if title == OTHERS else "",
            do="costs memory only: DynamicCache(config=model.config) keeps W-1 keys"
            if wasteful
            else "let generate() build the cache (no past_key_values of your own), or use another transformers release",
        )
    found = "" if seen else ": every token seen, every needed key held"
    yield Examined(steps, f"{steps} forwards x {layers} cache layers{found}")


def _at_edge(one: Pass, forward: Forward) -> str:
    if one.window is None:
        return ""
    delta = forward.total - one.window
    return f" (W{delta:+d})" if delta else " (= W)"


def _faults(trace: Trace, one: Pass, forward: Forward) -> Iterator[tuple[str, int, str, str]]:
    """(title, layer, observed, expected) for one forward."""
    for layer in forward.cache:
        if layer.seen is not None and layer.seen != forward.total:
            yield LENGTH, layer.layer, f"{layer.seen} tokens seen", f"{forward.total}: as many as were fed"
        yield from _stored(trace, one, forward, layer)
    for call in forward.calls:
        needed = _needed(trace, one, forward.total, call.layer)
        if forward.is_decode_step and call.key_shape[2] < needed:
            yield HANDED, call.layer, f"{call.key_shape[2]} keys", f"{needed} keys"
        wrong = _wrong_keys(trace, one, forward, call)
        if wrong:
            yield OTHERS, call.layer, *wrong


def _needed(trace: Trace, one: Pass, total: int, layer: int) -> int:
    """Keys that the last of `total` tokens reads in this layer, itself included."""
    if trace.layer_kinds.get(layer) == SLIDING and one.window is not None:
        return min(total, one.window)
    return total


def _stored(trace: Trace, one: Pass, forward: Forward, layer: CacheLayer) -> Iterator[tuple[str, int, str, str]]:
    if layer.layer in trace.shares_kv_with:
        if layer.stored:
            yield SHARING, layer.layer, f"{layer.stored} keys", "0 keys"
        return
    sliding = trace.layer_kinds.get(layer.layer) == SLIDING and one.window is not None
    # the next query brings its own key, so a dynamic sliding layer can do with one less than the window
    needed = min(forward.total, one.window - 1) if sliding and one.window else forward.total
    if layer.stored < needed:
        yield MISSING, layer.layer, f"{layer.stored} keys stored", f"at least {needed}"
    elif sliding and not layer.static and not layer.recording and layer.stored > needed:
        yield MORE, layer.layer, f"{layer.stored} keys stored", f"{needed}: W-1 keys are enough"


def _readable(call: KernelCall) -> Bools:
    """Columns that the last query of the first row may read, shape (k,)."""
    keys = call.key_shape[2]
    if call.mask is None or call.mask.form != "dense":
        return np.ones(keys, dtype=bool)
    columns: Bools = np.asarray(call.mask.readable()[0, :, -1, :keys].any(axis=0))
    return columns


def _read_and_expected(trace: Trace, one: Pass, forward: Forward, call: KernelCall) -> tuple[set[int], set[int]] | None:
    """Token positions that the last query reads and should read; None where the keys were not all recognised."""
    if call.key_positions is None:
        return None
    columns = call.key_positions[0][_readable(call)]
    if (columns == UNRECOGNISED).any():
        return None
    needed = _needed(trace, one, forward.total, call.layer)
    return set(columns[columns != EMPTY_SLOT].tolist()), set(range(forward.total - needed, forward.total))


def _wrong_keys(trace: Trace, one: Pass, forward: Forward, call: KernelCall) -> tuple[str, str] | None:
    """(observed, expected) when keys of the window are missing among those handed over."""
    sets = _read_and_expected(trace, one, forward, call)
    if sets is None or not sets[1] - sets[0]:
        return None
    read, expected = sets
    return (
        f"{len(read & expected)} keys of the window, the oldest is token {min(read, default=-1)}",
        f"{len(expected)} keys, the oldest is token {min(expected)}",
    )


def _known(trace: Trace, one: Pass, forward: Forward, call: KernelCall) -> str:
    """The public fault whose signature this is: a static layer that is just full has dropped the oldest key."""
    sets = _read_and_expected(trace, one, forward, call)
    static = any(layer.static for layer in forward.cache if layer.layer == call.layer)
    if sets and static and forward.total == one.window and sets[1] - sets[0] == {0}:
        return "transformers issue 37574, releases 4.43 to 4.51, fixed in 4.52.1; reproduced by this run"
    return ""


def _strip(trace: Trace, one: Pass, forward: Forward, call: KernelCall) -> Strip | None:
    sets = _read_and_expected(trace, one, forward, call)
    if sets is None or not sets[1] - sets[0]:
        return None
    read, expected = sets
    positions = range(min(expected), forward.total)
    width = -(-len(positions) // MARKS)
    groups = [positions[i : i + width] for i in range(0, len(positions), width)]
    return Strip(
        caption=f"token {forward.total - 1}, layer {call.layer}, {width} tokens a mark "
        "(# read, ! should be read and is not)",
        expected="#" * len(groups),
        observed="".join("!" if set(group) & expected - read else "#" for group in groups),
    )
