"""The cache has seen every token, holds those that the next ones need, and hands the right ones over.

What it proves
    After every forward (prefill, each decode step before, at and after the window edge, a second turn, a padded batch;
    the long generation streams its tokens out): each cache layer has seen exactly the columns that were fed; it holds
    what the next query needs (everything in full layers, W-1 keys in dynamic sliding layers, W slots in static ones);
    and the keys handed to the kernel are recognised, one by one, as those of the tokens that the query should read.
    Layers that reuse another layer's keys are handed the same ones as that layer.

Why it matters
    Positions and masks are computed from the length that the cache reports. A key that is dropped one step early, or a
    length taken from a sliding layer that stopped growing, changes every later token without an error.

How to fix
    Let the library build the cache from the config (`DynamicCache(config=...)`, or none at all); take the length from
    `get_seq_length()` of the cache, never from a key tensor of a sliding layer.

Known limits
    Keys are recognised among those that a layer handed to its cache, at decode steps (in the long generation next to
    the edge and at every 16th step). That values belong to their keys is decode-parity's business. More keys than
    needed cost memory only, behind a right mask: see cache-growth. Fixed-size caches of releases before 4.54 know no
    cumulative length.

References
    transformers issue 37574: the oldest key of the window was dropped one step early (4.43 to 4.51, fixed in 4.52.1).
    transformers issues 37269 and 39593: a default cache without room for the next token (4.50 to 4.52).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemma_doctor.check import check, nothing_there
from gemma_doctor.evidence import FOREIGN, UNRECOGNISED, Bools, CacheLayer, Forward, Ints, KernelCall, Pass, Trace
from gemma_doctor.finding import Examined, Finding, Severity, Sighting, Strip, ranges

LENGTH = "a cache layer reports a wrong length"
MISSING = "the cache holds fewer keys than the window needs"
HANDED = "the kernel receives fewer keys than the query should read"
OTHERS = "the cache hands over other keys than those of the window"
STALE = "the cache hands over keys that this run never stored"
UNSHARED = "a layer reads other keys than those of the layer that it shares them with"
FEW, HALF = 3, 0.5


@check(decides_before="positions")
def past_key_length(trace: Trace) -> Iterator[Finding | Examined]:
    """The cache counts every token and hands over the keys of the window."""
    seen: dict[str, tuple[_Fault, Sighting]] = {}
    steps = layers = 0
    for one, step, forward, real in trace.steps():
        if not forward.cache:
            continue
        steps += 1
        layers = max(layers, len(forward.cache))
        for fault in _faults(trace, one, forward, real):
            first = Sighting(fault.observed, fault.expected, f"first in {one.place(step, forward.total)}")
            _, sighting = seen.setdefault(fault.title, (fault, first))
            for layer in (fault.layer, *_readers(trace, fault.layer)):
                sighting.at(one.name, layer)
    if not steps:
        raise nothing_there(trace, "no pass used a cache")
    for title, (fault, sighting) in seen.items():
        do = "let generate() build the cache (no past_key_values of your own), or use another transformers release"
        yield sighting.finding(title, Severity.ERROR, do, **fault.more)
    found = "" if seen else ": every token seen, every needed key held"
    looked = [call.unrecognised for _, _, _, call in trace.calls() if call.key_positions is not None]
    found += f"; keys recognised in {len(looked)} calls" if looked else ""
    found += f", but not all of them in {sum(map(bool, looked))}" if any(looked) else ""
    yield Examined(steps, f"{steps} forwards x {layers} cache layers{found}")


@dataclass(frozen=True)
class _Fault:
    """One fault of one layer in one forward; `more` are further fields of its Finding."""

    title: str
    layer: int
    observed: str
    expected: str
    more: Mapping[str, Any] = field(default_factory=dict)


def _faults(trace: Trace, one: Pass, forward: Forward, real: Bools) -> Iterator[_Fault]:
    for layer in forward.cache:
        if layer.seen is not None and layer.seen != forward.total:
            said = f"{forward.total}: as many as were fed"
            yield _Fault(LENGTH, layer.layer, f"{layer.seen} tokens seen", said)
        yield from _stored(trace, one, forward, layer)
    for call in forward.calls:
        needed = _needed(trace, one, forward.total, call.layer)
        if forward.is_decode_step and call.key_shape[2] < needed:
            yield _Fault(HANDED, call.layer, f"{call.key_shape[2]} keys", f"{needed} keys")
        source = trace.shares_kv_with.get(call.layer)
        yield from _others(forward, call, real, needed) if source is None else _unshared(forward, call, source)


def _readers(trace: Trace, layer: int) -> list[int]:
    """Layers that have no cache of their own but this one's: what is wrong with it is wrong for them."""
    return [reader for reader, source in trace.shares_kv_with.items() if source == layer]


def _unshared(forward: Forward, call: KernelCall, source: int) -> Iterator[_Fault]:
    """Whether a layer was handed other keys than the layer was whose keys it reuses."""
    held, others = (
        next((one.key_positions for one in forward.calls if one.layer == layer), None) for layer in (call.layer, source)
    )
    if held is None or others is None or held.shape != others.shape:
        return  # not looked at, or one key too few or too many
    wrong = int((held != others).any(axis=0).sum())
    if wrong:
        yield _Fault(UNSHARED, call.layer, f"{wrong} of {held.shape[1]} keys are others", f"those of layer {source}")


def _others(forward: Forward, call: KernelCall, real: Bools, needed: int) -> Iterator[_Fault]:
    """What the keys that a call received are of, against the tokens that should be among them; the first row wrong.

    Args:
        real: no pads, shape (b, columns).
        needed: keys that the last query reads, itself included.
    """
    held = call.key_positions
    if held is None or not (_known(held).mean(axis=1) >= HALF).any():
        return  # keys are not stored as they are read: nothing can be told
    window = np.arange(forward.total - needed, forward.total)
    for sequence, (columns, due) in enumerate(
        zip(held, (set(window[row[window]].tolist()) for row in real), strict=True)
    ):
        foreign, known = np.flatnonzero(columns == FOREIGN), set(columns[_known(columns)].tolist())
        of_batch = f" of sequence {sequence}" if len(real) > 1 else ""
        if len(foreign):
            observed = f"{len(foreign)} of {len(columns)} keys{of_batch}, first in the place of token "
            observed += str(forward.first_key(call) + int(foreign[0]))
            yield _Fault(STALE, call.layer, observed, "the keys of tokens that were handed to the cache")
            return
        if not (columns == UNRECOGNISED).any() and due - known:
            lost, instead = (", ".join(ranges(sorted(some))[:FEW]) for some in (due - known, known - due))
            observed = f"{len(known & due)} keys of the window{of_batch}, "
            observed += f"the oldest is token {min(known & due, default=-1)}; lacks {lost}"
            observed += f", holds {instead} instead" if instead and not of_batch else ""
            more = {"strip": _strip(call.layer, known, due)}
            yield _Fault(OTHERS, call.layer, observed, f"{len(due)} keys, the oldest is token {min(due)}", more)
            return


def _known(held: Ints) -> Bools:
    """Columns whose token was recognised."""
    known: Bools = held >= 0
    return known


def _needed(trace: Trace, one: Pass, total: int, layer: int) -> int:
    """Keys that the last of `total` tokens reads in this layer, itself included."""
    window = trace.window(one, layer)
    return total if window is None else min(total, window)


def _stored(trace: Trace, one: Pass, forward: Forward, layer: CacheLayer) -> Iterator[_Fault]:
    if layer.layer in trace.shares_kv_with:
        return
    needed = _needed(trace, one, forward.total + 1, layer.layer) - 1  # the next query brings its own key ...
    if layer.static:
        needed = _needed(trace, one, forward.total, layer.layer)  # ... which needs a slot where there are slots
    if layer.stored < needed:
        yield _Fault(MISSING, layer.layer, f"{layer.stored} keys stored", f"at least {needed}")


def _strip(layer: int, read: set[int], expected: set[int]) -> Strip:
    tokens = sorted(expected)
    return Strip.of(f"token {tokens[-1]}, layer {layer}", [True] * len(tokens), [token in read for token in tokens])
