"""What each layer of a decoder is built for, as one document that can be held against another engine's.

Nothing runs. Either the published file alone speaks, or the modules that the installed transformers builds from it
(whole, and without weights: on torch's meta device they take no memory). What neither names is left out of the
document, which is not the same as null: "there is none". The document is described by report/facts.schema.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

from gemma_doctor import __version__
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import SLIDING, ConfigFacts, LayerFacts
from gemma_doctor.facts import version_of
from gemma_doctor.oracle import KvLayer, kv_layers, turns
from gemma_doctor.published import text_part
from gemma_doctor.settings import Settings
from gemma_doctor.subject import Subject, resolve

if TYPE_CHECKING:  # it imports torch
    from gemma_doctor.capture.structure import Structure

SCHEMA_VERSION = 1
DOCUMENT = "gemma-doctor facts"
SOURCES = ("auto", "published", "loaded")
# Of a text part's mapping, by the name that the document has for them.
MODEL_KEYS = {
    "vocab_size": "vocab_size",
    "attention_softcap": "attn_logit_softcapping",
    "logits_softcap": "final_logit_softcapping",
}
SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
QUERY_SCALE = "query_pre_attn_scalar"

Facts = dict[str, Any]


def layer_facts(settings: Settings, source: str = "auto") -> Facts:
    """The document of one subject.

    Args:
        settings: name the subject; overrides count.
        source: "published" (no torch is imported), "loaded" (what the installed transformers builds of it), or "auto":
            the file if it names what decides about every layer, else the modules.

    Raises:
        DoctorError: no such subject; the file does not name its layers ("published"); or the installed transformers
            cannot build it.
    """
    subject = resolve(replace(settings, static=True))  # weights are not looked at, so none are missed
    written = subject.config.published
    if source != "loaded":
        try:
            return _document(subject, "published", _model(written, subject), _published_layers(written))
        except ValueError as error:
            if source == "published":
                raise DoctorError(
                    f"{subject.name}: {error}", "--source loaded asks the installed transformers"
                ) from None
    from gemma_doctor.capture.structure import structure  # imports torch

    built = structure(subject)
    return _document(subject, "loaded", _model(built.config, subject), _loaded_layers(built))


def _document(subject: Subject, source: str, model: Facts, layers: Iterator[Facts]) -> Facts:
    engine = f", transformers {version_of('transformers')}" if source == "loaded" else ""
    return {
        "schema_version": SCHEMA_VERSION,
        "document": DOCUMENT,
        "source": source,
        "made_by": f"gemma-doctor {__version__}{engine}",
        "subject": subject.name,
        "model": model,
        "layers": list(layers),
    }


def _model(facts: ConfigFacts, subject: Subject) -> Facts:
    """What holds for every layer."""
    named: Facts = {
        "family": facts.family,
        "layer_count": facts.layers,
        "hidden_size": facts.hidden_size,
        "max_positions": facts.max_positions,
        "norm_eps": facts.eps.value if facts.eps else None,
    }
    found = {name: value for name, value in named.items() if value is not None}
    found |= {name: facts.raw[key] for name, key in MODEL_KEYS.items() if key in facts.raw}
    usable = {name: value for name, value in found.items() if name == "family" or value is None or _is_number(value)}
    return {**usable, "causal": facts.causal, **dict(_special_ids(subject.published))}


def _is_number(value: object) -> TypeGuard[float]:
    """A file may write anything."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _special_ids(published: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Those of the whole mapping come first: that is where an image-text model's own are."""
    text, _ = text_part(published)
    for name in SPECIAL_IDS:
        value = next((part[name] for part in (published, text) if part.get(name) is not None), None)
        ids = value if isinstance(value, list) else [value]
        if ids and all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
            yield name, sorted(ids) if isinstance(value, list) else value


# --- as published ----------------------------------------------------------------------------------------------------


def _published_layers(facts: ConfigFacts) -> Iterator[Facts]:
    """Raises ValueError, before the first layer: the file leaves something to the class that decides about a layer."""
    layers = kv_layers(facts)
    if facts.heads is None:
        raise ValueError("the configuration names no num_attention_heads")
    if not facts.causal and any(layer.window is not None for layer in layers):
        raise ValueError("bidirectional: its class decides how wide the window is")
    turning = {layer.kind for index, layer in enumerate(layers) if turns(facts, index, layer.kind)}
    if any((claim := facts.rope_of(kind)) is None or claim.theta is None for kind in turning):
        raise ValueError("the configuration names no rope_theta for each kind of its layers")
    return (_published_layer(facts, layers, index) for index in range(len(layers)))


def _published_layer(facts: ConfigFacts, layers: tuple[KvLayer, ...], index: int) -> Facts:
    layer = layers[index]
    own = [other for other, one in enumerate(layers) if one.kind == layer.kind and not one.shares]
    scale = facts.raw.get(QUERY_SCALE)
    scaled = {"attention_scale": scale**-0.5} if _is_number(scale) and scale > 0 else {}
    return {
        "index": index,
        "kind": layer.kind,
        "window": layer.window,
        **_rope(facts, index, layer.kind),
        "head_dim": layer.head_dim,
        "query_heads": facts.heads,
        "kv_heads": layer.kv_heads,
        "shares_kv_with": max(own, default=None) if layer.shares else None,
        **scaled,
    }


def _rope(facts: ConfigFacts, index: int, kind: str) -> Facts:
    """Rotary parameters of one layer; theta is null where it does not turn."""
    if not turns(facts, index, kind):
        return {"rope_theta": None}
    claim = facts.rope_of(kind)
    if claim is None:
        return {}
    named = {} if claim.theta is None else {"rope_theta": claim.theta}
    return {**named, "rope_type": claim.rope_type or "default", "rope_parameters": dict(claim.parameters)}


# --- as built --------------------------------------------------------------------------------------------------------


def _loaded_layers(built: Structure) -> Iterator[Facts]:
    for layer in built.layers:
        scale = built.scales.get(layer.index)
        yield {
            "index": layer.index,
            "kind": layer.kind,
            "window": _window(layer, built.config),
            **_rope(built.config, layer.index, layer.kind),
            "head_dim": layer.head_dim,
            "query_heads": layer.query_heads,
            "kv_heads": layer.kv_heads,
            "shares_kv_with": layer.shares_kv_with,
            **({} if scale is None else {"attention_scale": scale}),
        }


def _window(layer: LayerFacts, config: ConfigFacts) -> Any:
    """That of the module; where it carries none, the configuration's is passed to it at call time."""
    if layer.window_attributes:
        return next((value for value in layer.window_attributes.values() if value is not None), None)
    return config.window_in_force if layer.kind == SLIDING else None
