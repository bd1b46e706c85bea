"""The layers are of the published kinds, from the file down to how far each of them may really read.

What it proves
    The kind of every layer (full, sliding) as written in the file, under any spelling, as the config class decides it,
    and as the running model has it, is one; the file has one entry for each layer; and layers without a window may read
    everything before them, by the masks and key lengths of all passes.

Why it matters
    Patterns are written in three ways (layer_types, a period, a first sliding layer), and releases read one or another
    of them and leave the rest. Where the pattern is lost, a class default takes its place: full layers forget what lies
    beyond the window, sliding ones read what they never learned to read. Nothing raises.

How to fix
    Write layer_types, one entry for each layer, which newer releases read before anything else; or use a release that
    reads the spelling of the file. Switches that contradict each other (a window that is on, and a first sliding layer
    behind the last) have to be made to agree.

Known limits
    Where the file names no pattern, the class default stands; it is compared with the preset that the subject comes
    from, if there is one. How wide a window is, is the business of `sliding-window`. A skeleton has a period of the
    layers; the others are compared in its config class alone.

References
    Gemma 2, arXiv:2408.00118, section 2; Gemma 3, arXiv:2503.19786, section 2; transformers issue 40126.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gemma_doctor.check import CouldNotLook, NotApplicable, check
from gemma_doctor.evidence import (
    SLIDING,
    Config,
    ConfigDrift,
    ConfigFacts,
    Expectation,
    ModelFacts,
    Span,
    Trace,
    place_of,
    spans,
)
from gemma_doctor.finding import Examined, Finding, Location, Severity, counted

Kinds = Sequence[str]


@check()
def layer_pattern(
    config: Config, facts: ModelFacts | None, drift: ConfigDrift | None, trace: Trace | None
) -> Iterator[Finding | Examined]:
    """Kinds of the layers: published = loaded = how far each may really read."""
    published = config.published
    kinds = published.layer_kinds
    for one in config.expectations:
        yield from _other_kinds(one, published, facts)
    yield from _nowhere_in_force(published, facts)
    if facts is None and kinds is None:
        if any(one.binding and one.facts.layer_kinds is not None for one in config.expectations):
            raise CouldNotLook("kinds of layers are expected, and the file names none")
        raise NotApplicable("the file names no kinds of layers")
    yield from _wrong_number(published)
    lost = list(_lost(published, kinds, drift, facts)) if kinds and drift and facts else []
    yield from lost
    seen = list(spans(trace)) if trace else []
    yield from _limited(span for span in seen if span.kind != SLIDING)
    loaded = (drift.kinds if drift else kinds) or [layer.kind for layer in (facts.layers if facts else ())]
    arrived = kinds is None or (drift is not None and not lost)
    links = [*(["published"] if kinds is not None else []), *(["loaded"] if facts and arrived else [])]
    proven = len({span.layer for span in seen if not span.wrong and (span.crosses or span.kind != SLIDING)})
    links += [f"measured in {counted(proven, 'layer')}"] if proven else []
    yield Examined(len(loaded) + proven, f"{_counts(loaded)} {' = '.join(links)}")


def _counts(kinds: Kinds) -> str:
    """ "15 sliding, 3 full"."""
    return ", ".join(f"{count} {kind.removesuffix('_attention')}" for kind, count in Counter(kinds).items())


def _keys(published: ConfigFacts) -> tuple[str, ...]:
    """Where the pattern is written."""
    return (published.pattern.key,) if published.pattern else ()


def _wrong_number(published: ConfigFacts) -> Iterator[Finding]:
    kinds = published.layer_kinds
    if kinds is not None and published.layers is not None and len(kinds) != published.layers and published.pattern:
        yield Finding(
            title=f"{published.pattern.key} does not have one entry for each layer",
            severity=Severity.ERROR,
            observed=f"{len(kinds)} entries in {published.origin}",
            expected=f"{published.layers} (num_hidden_layers)",
            do=f"write {published.layers} entries into {published.pattern.key}",
            keys=(published.pattern.key, *published.written("num_hidden_layers")),
        )


def _nowhere_in_force(published: ConfigFacts, facts: ModelFacts | None) -> Iterator[Finding]:
    """Two keys decide: the switch, and the layer from which on layers slide. One can be on and the other leave none."""
    kinds = published.layer_kinds
    if kinds is None and facts is not None:
        kinds = tuple(layer.kind for layer in facts.layers)
    switch, asked = published.window_switch, published.window_in_force
    if kinds is None or SLIDING in kinds or asked is None or switch is None or switch.value is not True:
        return
    decides = published.pattern.key if published.pattern else "the class default of max_window_layers"
    yield Finding(
        title="a window is switched on, and no layer slides",
        severity=Severity.WARNING,
        observed=f"{switch.key}=true and a window of {asked}, but all layers are full by {decides}",
        expected=f"layers that slide, or {switch.key}=false",
        do="set max_window_layers to the first layer that slides (0: all of them), or switch the window off",
        keys=(*_keys(published), switch.key),
    )


def _other_kinds(one: Expectation, published: ConfigFacts, facts: ModelFacts | None) -> Iterator[Finding]:
    """The kinds of the layers as written; if only loaded, of all layers, or of the kinds that a skeleton keeps."""
    expected, found, origin = one.facts.layer_kinds, published.layer_kinds, published.origin
    if expected is not None and found is None and facts is not None:
        found, origin = tuple(layer.kind for layer in facts.layers), facts.loaded.origin
        if len(found) != len(expected) and set(found) == set(expected):
            return
    if expected is None or found is None or found == expected:
        return
    layer, observed, due = _first_apart(found, expected)
    yield Finding(
        title="the layers are not of the kinds expected",
        severity=one.severity,
        where=Location(layers=layer),
        observed=f"{observed} in {origin}",
        expected=f"{due} ({one.facts.origin})",
        do="set the pattern of the layers back, or drop the expectation if this is on purpose",
        keys=_keys(published),
    )


def _first_apart(found: Kinds, expected: Kinds) -> tuple[tuple[int, ...], str, str]:
    """The first layer of another kind, and both kinds in words; the numbers of layers where only those differ."""
    layer = next((i for i, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), None)
    if layer is None:
        return (), f"{len(found)} layers", str(len(expected))
    return (layer,), f"layer {layer} {found[layer]}", expected[layer]


def _lost(published: ConfigFacts, kinds: Kinds, drift: ConfigDrift, facts: ModelFacts) -> Iterator[Finding]:
    """The class made other kinds of what is written, or the running model has others; `kept` are its layers."""
    running = [layer.kind for layer in facts.layers]
    due = [kinds[index] for index in drift.kept if index < len(kinds)]
    same_number = len(kinds) == len(drift.kinds)
    key = published.pattern.key if published.pattern else "pattern"
    for found, wanted, who in ((drift.kinds, kinds, "loaded"), (running, due, "in the running model")):
        if same_number and list(found) != list(wanted):
            layer, observed, expected = _first_apart(found, wanted)
            yield Finding(
                title="the layers are not of the published kinds",
                severity=Severity.ERROR,
                where=Location(layers=layer if found is running else ()),
                observed=f"{observed} {who}",
                expected=f"{expected} ({key} in {published.origin})",
                do="write layer_types, one entry for each layer, or use a release that reads the pattern of the file",
                keys=_keys(published),
                standing=True,
            )
            return


def _limited(wide: Iterable[Span]) -> Iterator[Finding]:
    wrong = [span for span in wide if span.wrong]
    if wrong:
        yield Finding(
            title="layers that should read everything do not",
            severity=Severity.ERROR,
            where=place_of(wrong),
            gate="mask",
            observed=str(wrong[0]),
            expected=f"{wrong[0].due} keys, {wrong[0].kind} has no window",
            do="look at layer_types and the window in the configuration: the window reaches layers that have none",
        )
