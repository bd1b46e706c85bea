"""How far back the layers of each pass may read, by their masks and key lengths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gemma_doctor.evidence.arrays import SLIDING
from gemma_doctor.evidence.running import Pass, Trace
from gemma_doctor.finding import Location


@dataclass(frozen=True)
class Span:
    """The widest reach back of one layer in one pass, itself included, in tokens.

    Attributes:
        widest, due: of the prefill; of the whole pass where a later step reaches too far.
        crosses: the pass outgrew the window, so the figure proves something.
    """

    layer: int
    kind: str
    pass_name: str
    widest: int
    due: int
    crosses: bool

    @property
    def wrong(self) -> bool:
        return self.widest != self.due

    def __str__(self) -> str:
        """ "layer 0 reads 512 keys where 511 are due (pass 'prompt W')"."""
        return f"layer {self.layer} reads {self.widest} keys where {self.due} are due (pass {self.pass_name!r})"


def spans(trace: Trace) -> Iterator[Span]:
    """One per layer and pass without pads."""
    for one in trace.passes:
        if one.padded:
            continue
        prefill: dict[int, int] = {}
        later: dict[int, int] = {}
        longest: dict[int, int] = {}
        for step, forward in enumerate(one.forwards):
            for call in forward.calls:
                reach = forward.reach(call)
                if reach is not None:
                    longest[call.layer] = forward.total
                    widest = later if step else prefill
                    widest[call.layer] = max(widest.get(call.layer, 0), reach)
        for layer, reach in prefill.items():
            yield _span(one, layer, trace.layer_kinds[layer], reach, later.get(layer, 0), longest[layer])


def _span(one: Pass, layer: int, kind: str, prefill: int, later: int, longest: int) -> Span:
    """Steps that reach too far count against the window; steps that reach too short have lost keys in the cache."""
    limit = one.window if one.window and kind == SLIDING else longest
    due, due_later = min(limit, one.prompt_length), min(limit, longest)
    if prefill == due and later > due_later:
        return Span(layer, kind, one.name, later, due_later, longest > limit)
    return Span(layer, kind, one.name, prefill, due, longest > limit)


def place_of(wrong: Iterable[Span], layers: Iterable[int] = ()) -> Location:
    """Where wrong spans were seen, together with `layers`."""
    found = tuple(sorted({*layers, *(span.layer for span in wrong)}))
    return Location(found, tuple(dict.fromkeys(span.pass_name for span in wrong)))
