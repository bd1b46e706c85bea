"""The sliding window is the published one, from the file down to the keys that a layer may really read.

What it proves
    The window in the published file (under any spelling), in the loaded configuration, in every attention module that
    keeps one, and the widest span from a query back to a key that masks and key lengths allow in each layer are one
    number W. A query sees itself and the W - 1 keys before it; layers without a window see everything before them.

Why it matters
    With another window than the one it was trained with, a model forgets early, or reads what it never learned to
    read. Short prompts do not show it; long generations drift and repeat, without any error.

How to fix
    Write the published value into the file, or into the configuration before the model is built from it. A window can
    also be lost to a switch (`use_sliding_window: false`), to an explicit null, to a class default that fills a sparse
    file, or because it was set at the top level while the nested `text_config` decides.

Known limits
    Spans are read from masks and key lengths of passes without pads, so a kernel that ignores its mask is not seen
    here; block masks (flex) are not opened. Too few keys at a cached step are the business of `past-key-length`. A
    skeleton's passes run at a smaller window; its configuration and modules are compared at the true one.

References
    Mistral 7B, arXiv:2310.06825, section 2; Gemma 2, arXiv:2408.00118, section 2; Gemma 3, arXiv:2503.19786, section 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemma_doctor.check import NotApplicable, check
from gemma_doctor.evidence import SLIDING, Config, ConfigFacts, Forward, KernelCall, ModelFacts, Pass, Trace
from gemma_doctor.finding import Examined, Finding, Location, Severity


@check()
def sliding_window(config: Config, facts: ModelFacts | None, trace: Trace | None) -> Iterator[Finding | Examined]:
    """Published = loaded = each attention module = the widest span that is really read."""
    _refuse_if_none(config, facts)
    yield from _written(config.published)
    yield from _against_expectations(config, facts)
    spans = _spans(trace) if trace else []
    wanted = _wanted(config.published, facts)
    if facts is not None:
        yield from _direction(config.published, facts)
        yield from _chain(config.published, facts, wanted, [span for span in spans if span.kind == SLIDING])
        yield from _limited(span for span in spans if span.kind != SLIDING)
    proven = {span.layer for span in spans if span.kind == SLIDING and span.crosses and not span.wrong}
    yield Examined(1 + len(proven), " = ".join(_links(config.published, facts, wanted, len(proven) if trace else None)))


def _links(published: ConfigFacts, facts: ModelFacts | None, wanted: Any, proven: int | None) -> list[str]:
    """The chain in words: "512 published = loaded = 15 modules = measured in 15 layers"."""
    written = _in_force(published)
    links = [f"{_said(published)} published"] if published.window else []
    if facts is not None:
        halved = f" as {wanted}, itself included, each way" if published.window and written != wanted else ""
        links.append("loaded" + halved if links else f"{wanted} (class default) loaded")
        holding = sum(any(layer.window_attributes.values()) for layer in facts.layers)
        links += [_count(holding, "module")] if holding else []
    if proven is not None and wanted is not None:
        links.append(f"measured in {_count(proven, 'layer')}" if proven else "not measured (no pass outgrows it)")
    return links


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _in_force(facts: ConfigFacts) -> Any:
    """None if no window is named, null is written, or a switch turns it off."""
    off = facts.window_switch is not None and facts.window_switch.value is False
    return None if facts.window is None or off else facts.window.value


def _wanted(published: ConfigFacts, facts: ModelFacts | None) -> Any:
    """What loaded value and modules should be. Bidirectional classes keep half of the published width, each way."""
    if published.window is None:
        return _in_force(facts.loaded) if facts else None
    window = _in_force(published)
    return window // 2 + 1 if isinstance(window, int) and facts and not facts.causal else window


def _refuse_if_none(config: Config, facts: ModelFacts | None) -> None:
    published, switch = config.published, config.published.window_switch
    if any(_in_force(one.facts) is not None for one in config.expectations):
        return
    if switch is not None and switch.value is False:
        raise NotApplicable(f"switched off by {switch.key}=false")
    slides = published.layer_kinds is None or SLIDING in published.layer_kinds
    if slides and _in_force(published) is not None:
        return
    by_layers = facts is not None and any(layer.kind == SLIDING for layer in facts.layers)
    if not by_layers and (published.layer_kinds is None or not slides):
        raise NotApplicable("no layer of this model slides" if facts else "the file names no sliding window")


def _written(published: ConfigFacts) -> Iterator[Finding]:
    """What no reader could make sense of."""
    kinds, window = published.layer_kinds, published.window
    if kinds is not None and published.layers is not None and len(kinds) != published.layers and published.pattern:
        yield Finding(
            title=f"{published.pattern.key} does not have one entry for each layer",
            severity=Severity.ERROR,
            observed=f"{len(kinds)} entries in {published.origin}",
            expected=f"{published.layers} (num_hidden_layers)",
            do=f"write {published.layers} entries into {published.pattern.key}",
        )
    if window is None:
        return
    value, whole = window.value, isinstance(window.value, int) and not isinstance(window.value, bool)
    missing = value is None and kinds is not None and SLIDING in kinds and _switched_on(published)
    if missing or (value is not None and (not whole or value < 1)):
        yield Finding(
            title=f"{window.key} is no usable window",
            severity=Severity.ERROR,
            observed=f"{value!r} in {published.origin}",
            expected="a whole number of tokens, 1 or more" + (", since layers slide" if missing else ""),
            do=f"write the window that the model was trained with into {window.key}",
        )


def _switched_on(published: ConfigFacts) -> bool:
    return published.window_switch is None or published.window_switch.value is not False


def _against_expectations(config: Config, facts: ModelFacts | None) -> Iterator[Finding]:
    published = config.published
    source = published if published.window or not facts or not facts.causal else facts.loaded
    for one in config.expectations:
        if one.facts.window is None or source.window is None or _in_force(one.facts) == _in_force(source):
            continue
        yield Finding(
            title="the window is not the one expected",
            severity=Severity.ERROR if one.binding else Severity.WARNING,
            observed=f"{_said(source)} in {source.origin}",
            expected=f"{_said(one.facts)} ({one.facts.origin})",
            do=f"set {source.window.key} to {_in_force(one.facts)}, or drop the expectation if this is on purpose",
        )


def _said(facts: ConfigFacts) -> str:
    if facts.window_switch is not None and facts.window_switch.value is False:
        return f"no window ({facts.window_switch.key}=false)"
    return "no window (null)" if facts.window is None or facts.window.value is None else str(facts.window.value)


def _direction(published: ConfigFacts, facts: ModelFacts) -> Iterator[Finding]:
    if facts.causal and not published.causal:
        yield Finding(
            title="the window looks back only, in a model published as bidirectional",
            severity=Severity.ERROR,
            observed="causal attention modules",
            expected=f"attention to both sides (use_bidirectional_attention in {published.origin})",
            do="use a release of transformers that reads use_bidirectional_attention for this family",
        )


def _chain(published: ConfigFacts, facts: ModelFacts, wanted: Any, spans: list[_Span]) -> Iterator[Finding]:
    """One finding for every link between the file and the keys that breaks."""
    loaded = _in_force(facts.loaded)
    sliding = [layer.index for layer in facts.layers if layer.kind == SLIDING]
    modules = {
        layer.index: value
        for layer in facts.layers
        for value in layer.window_attributes.values()
        if layer.kind == SLIDING and value != wanted
    }
    wrong = [span for span in spans if span.wrong]
    lost = published.window is not None and loaded != wanted
    if not (lost or modules or wrong):
        return
    seen = [f"loaded {_said(facts.loaded)}"]
    seen += [f"modules {', '.join(sorted(map(str, set(modules.values()))))}"] if modules else []
    seen += [wrong[0].words()] if wrong else []
    layers = sliding if lost else sorted({*modules, *(span.layer for span in wrong)})
    only_measured = not (lost or modules)
    yield Finding(
        title="sliding layers do not have the published window"
        if sliding
        else "the published window is lost on loading",
        severity=Severity.ERROR,
        where=Location(tuple(layers), tuple(dict.fromkeys(span.pass_name for span in wrong))),
        observed="; ".join(seen),
        expected=f"{wanted} everywhere ({published.window.key} in {published.origin})"
        if published.window
        else f"{wanted} everywhere (loaded config)",
        do="look at what builds the mask of these layers: configuration and modules have the right window"
        if only_measured
        else "set the window in the configuration before the model is built from it",
        gate="mask" if only_measured else "",
        standing=not only_measured,
    )


def _limited(spans: Iterator[_Span]) -> Iterator[Finding]:
    wrong = [span for span in spans if span.wrong]
    if wrong:
        yield Finding(
            title="layers that should read everything do not",
            severity=Severity.ERROR,
            where=Location(
                layers=tuple(sorted({span.layer for span in wrong})),
                passes=tuple(dict.fromkeys(span.pass_name for span in wrong)),
            ),
            gate="mask",
            observed=wrong[0].words(),
            expected=f"{wrong[0].due} keys, {wrong[0].kind} has no window",
            do="look at layer_types and the window in the configuration: the window reaches layers that have none",
        )


@dataclass(frozen=True)
class _Span:
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

    def words(self) -> str:
        return f"layer {self.layer} reads {self.widest} keys where {self.due} are due (pass {self.pass_name!r})"


def _spans(trace: Trace) -> list[_Span]:
    found = []
    for one in trace.passes:
        if not one.padded:
            found += [span for layer, kind in trace.layer_kinds.items() if (span := _span(one, layer, kind))]
    return found


def _span(one: Pass, layer: int, kind: str) -> _Span | None:
    """Steps that reach too far count against the window; steps that reach too short have lost keys in the cache."""
    prefill, later, longest = 0, 0, 0
    for forward in one.forwards:
        for call in forward.calls:
            reach = _reach(forward, call) if call.layer == layer else None
            if reach is not None:
                longest = forward.total
                prefill, later = (reach, later) if forward.start == 0 else (prefill, max(later, reach))
    if not prefill:
        return None
    limit = one.window if one.window and kind == SLIDING else longest
    due, due_later = min(limit, one.prompt_length), min(limit, longest)
    crosses = longest > limit
    if prefill == due and later > due_later:
        return _Span(layer, kind, one.name, later, due_later, crosses)
    return _Span(layer, kind, one.name, prefill, due, crosses)


def _reach(forward: Forward, call: KernelCall) -> int | None:
    """Columns from a query back to the first key it may read, the widest of one call; None if that cannot be said.

    Key column c stands for token c + max(0, total - key length), before and after a cache rolls.
    """
    first_token = max(0, forward.total - call.key_shape[2])
    if call.mask is not None and call.mask.first is not None:
        first = call.mask.first
        if first.shape[-1] != call.query_shape[2] or not (first >= 0).any():
            return None
        queries = np.arange(forward.total - call.query_shape[2], forward.total)
        return int((queries - first - first_token + 1)[first >= 0].max())
    if call.mask is not None and call.mask.form != "padding":
        return None
    reach = forward.total - first_token
    by_kernel = call.window_argument if call.kernel.startswith("flash") else None
    return min(reach, by_kernel) if by_kernel else reach
