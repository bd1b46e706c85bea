"""The sliding window is the published one, from the file down to the keys that a layer may really read.

What it proves
    The window in the published file (under any spelling), in the loaded configuration, in every attention module that
    keeps one, and the widest span from a query back to a key that masks and key lengths allow in each sliding layer are
    one number W: a query sees itself and the W - 1 keys before it. Which layers slide is for `layer-pattern` to say.

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

from collections.abc import Iterable, Iterator
from typing import Any

from gemma_doctor.check import CouldNotLook, NotApplicable, check
from gemma_doctor.evidence import (
    SLIDING,
    Config,
    ConfigFacts,
    Expectation,
    ModelFacts,
    Span,
    Trace,
    place_of,
    spans,
)
from gemma_doctor.finding import Examined, Finding, Severity, counted

# First letters of the families whose configuration classes halve the window of a bidirectional model.
HALVING = ("gemma3", "gemma4", "diffusion_gemma", "embedding_gemma")


@check()
def sliding_window(config: Config, facts: ModelFacts | None, trace: Trace | None) -> Iterator[Finding | Examined]:
    """Published = loaded = each attention module = the widest span that is really read."""
    yield from _against_expectations(config, facts)
    _refuse_if_none(config, facts)
    yield from _written(config.published)
    sliding = [span for span in spans(trace) if span.kind == SLIDING] if trace else []
    wanted = _wanted(config.published, facts)
    if facts is not None:
        yield from _direction(config.published, facts)
        set_otherwise = list(_set_otherwise(config.published, facts, wanted, sliding))
        yield from set_otherwise or _read_otherwise(config.published, facts, wanted, sliding)
    proven = len({span.layer for span in sliding if span.crosses and not span.wrong})
    yield Examined(1 + proven, " = ".join(_links(config.published, facts, wanted, proven if trace else None)))


def _refuse_if_none(config: Config, facts: ModelFacts | None) -> None:
    published = config.published
    for one in config.expectations if facts is None else ():
        if one.binding and one.facts.window_in_force is not None and not _says_window(published):
            raise CouldNotLook("a window is expected, and the file names none")
    if any(one.facts.window_in_force is not None for one in config.expectations):
        return
    if published.switched_off:
        raise NotApplicable(f"switched off by {published.switched_off}")
    slides = published.layer_kinds is None or SLIDING in published.layer_kinds
    if slides and published.window_in_force is not None:
        return
    by_layers = facts is not None and any(layer.kind == SLIDING for layer in facts.layers)
    if not by_layers and (published.layer_kinds is None or not slides):
        raise NotApplicable("no layer of this model slides" if facts else "the file names no sliding window")


def _wanted(published: ConfigFacts, facts: ModelFacts | None) -> Any:
    """What loaded value and modules should be.

    The bidirectional classes of HALVING keep half of the published width, each way; Gemma 2's (in PaliGemma 2) keeps
    all of it. Of a family that is not known here, either is right.
    """
    if published.window is None:
        return facts.loaded.window_in_force if facts else None
    window = published.window_in_force
    if not isinstance(window, int) or facts is None or facts.causal:
        return window
    half = window // 2 + 1
    return half if published.family.startswith(HALVING) or facts.loaded.window_in_force == half else window


def _links(published: ConfigFacts, facts: ModelFacts | None, wanted: Any, proven: int | None) -> list[str]:
    """The chain in words: "512 published = loaded = 15 modules = measured in 15 layers"."""
    links = [f"{_said(published)} published"] if published.window else []
    if facts is not None:
        halved = f" as {wanted}, itself included, each way" if published.window_in_force != wanted else ""
        links.append("loaded" + halved if links else f"{wanted} (class default) loaded")
        holding = sum(any(layer.window_attributes.values()) for layer in facts.layers)
        links += [counted(holding, "module")] if holding else []
    if proven is not None and wanted is not None:
        links.append(f"measured in {counted(proven, 'layer')}" if proven else "not measured (no pass outgrows it)")
    return links


def _said(facts: ConfigFacts) -> str:
    if facts.switched_off:
        return f"no window ({facts.switched_off})"
    return "no window (null)" if facts.window_in_force is None else str(facts.window_in_force)


# --- what is written -------------------------------------------------------------------------------------------------


def _written(published: ConfigFacts) -> Iterator[Finding]:
    """A window that no reader could make sense of."""
    kinds, window = published.layer_kinds, published.window
    if window is None:
        return
    value, whole = window.value, isinstance(window.value, int) and not isinstance(window.value, bool)
    missing = value is None and kinds is not None and SLIDING in kinds and not published.switched_off
    if missing or (value is not None and (not whole or value < 1)):
        yield Finding(
            title=f"{window.key} is no usable window",
            severity=Severity.ERROR,
            observed=f"{value!r} in {published.origin}",
            expected="a whole number of tokens, 1 or more" + (", since layers slide" if missing else ""),
            do=f"write the window that the model was trained with into {window.key}",
            keys=(window.key,),
        )


def _against_expectations(config: Config, facts: ModelFacts | None) -> Iterator[Finding]:
    for one in config.expectations:
        yield from _another_window(one, config.published, facts)


def _says_window(facts: ConfigFacts) -> bool:
    return facts.window is not None or bool(facts.switched_off)


def _another_window(one: Expectation, published: ConfigFacts, facts: ModelFacts | None) -> Iterator[Finding]:
    source = published if _says_window(published) or not facts or not facts.causal else facts.loaded
    expected, found = one.facts.window_in_force, source.window_in_force
    # A loaded model without any window contradicts a demand for one; a file may leave it to a class default.
    said = _says_window(source) or (one.binding and facts is not None)
    if not _says_window(one.facts) or not said or expected == found:
        return
    key = next(claim.key for claim in (source.window, one.facts.window, one.facts.window_switch) if claim)
    yield Finding(
        title="the window is not the one expected",
        severity=one.severity,
        observed=f"{_said(source)} in {source.origin}",
        expected=f"{_said(one.facts)} ({one.facts.origin})",
        do=f"set {key} to {expected}, or drop the expectation if this is on purpose",
        keys=published.window_keys,
    )


def _direction(published: ConfigFacts, facts: ModelFacts) -> Iterator[Finding]:
    if facts.causal and not published.causal:
        yield Finding(
            title="the window looks back only, in a model published as bidirectional",
            severity=Severity.ERROR,
            observed="causal attention modules",
            expected=f"attention to both sides (use_bidirectional_attention in {published.origin})",
            do="use a release of transformers that reads use_bidirectional_attention for this family",
            keys=published.written("use_bidirectional_attention"),
        )


# --- what is set and what is read ------------------------------------------------------------------------------------


def _source(published: ConfigFacts) -> str:
    return f"{published.window.key} in {published.origin}" if published.window else "loaded config"


def _set_otherwise(published: ConfigFacts, facts: ModelFacts, wanted: Any, spans: Iterable[Span]) -> Iterator[Finding]:
    """The configuration or modules have another window; what their layers read comes along."""
    sliding = [layer for layer in facts.layers if layer.kind == SLIDING]
    odd = {x.index: value for x in sliding for value in x.window_attributes.values() if value != wanted}
    lost = published.window is not None and facts.loaded.window_in_force != wanted
    if not lost and not odd:
        return
    wrong = [span for span in spans if span.wrong]
    seen = [f"loaded {_said(facts.loaded)}"]
    seen += [f"modules {', '.join(sorted({str(value) for value in odd.values()}))}"] if odd else []
    seen += [str(wrong[0])] if wrong else []
    yield Finding(
        title="sliding layers do not have the published window"
        if sliding
        else "the published window is lost on loading",
        severity=Severity.ERROR,
        where=place_of(wrong, [layer.index for layer in sliding] if lost else odd),
        observed="; ".join(seen),
        expected=f"{wanted} everywhere ({_source(published)})",
        do="set the window in the configuration before the model is built from it",
        keys=published.window_keys,
        standing=True,
    )


def _read_otherwise(published: ConfigFacts, facts: ModelFacts, wanted: Any, spans: Iterable[Span]) -> Iterator[Finding]:
    """Only the measurement differs: that stands at the gate where it was seen."""
    wrong = [span for span in spans if span.wrong]
    if wrong:
        yield Finding(
            title="sliding layers do not have the published window",
            severity=Severity.ERROR,
            where=place_of(wrong),
            gate="mask",
            observed=f"loaded {_said(facts.loaded)}; {wrong[0]}",
            expected=f"{wanted} everywhere ({_source(published)})",
            do="look at what builds the mask of these layers: configuration and modules have the right window",
            keys=published.window_keys,
        )
