"""Scripts that show what the library makes of a configuration, against what is published or expected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gemma_doctor import compat
from gemma_doctor.evidence import FULL, ConfigFacts, RopeClaim
from gemma_doctor.finding import Finding
from gemma_doctor.oracle.rotation import inverse_frequencies
from gemma_doctor.redaction import technical
from gemma_doctor.reproduction.model import WITHOUT_USE, Model, NoScript
from gemma_doctor.reproduction.templates import as_json

CHECKS = ("sliding-window", "layer-pattern", "config-drift", "rms-norm-eps")
SAVED = "saved and loaded"
NOT_EXPECTED = "expected"  # in the titles of findings that hold the published file against an expectation


def content(finding: Finding, model: Model) -> tuple[str, dict[str, Any]]:
    """Template and values for a value of the configuration.

    Raises:
        NoScript: it is not clear which value should be which.
    """
    published = model.subject.config.published
    expected = _expected(finding, _right(finding, model))
    # a bidirectional class loads half of the published window, on purpose
    if not expected or (finding.check == "sliding-window" and not published.causal):
        raise NoScript("no single value of the configuration shows it")
    mapping = {key: value for key, value in technical(published.raw).items() if key not in WITHOUT_USE}
    model_type = mapping.get("model_type") or published.family
    return "config.jinja", {
        "config": as_json({"model_type": model_type, **mapping}),
        "expected": as_json(expected),
        "source": _source(finding),
        "saved": SAVED in finding.title,
        "layers": finding.check == "layer-pattern",
    }


def _right(finding: Finding, model: Model) -> ConfigFacts:
    """Whose value is right: an expectation's, where the finding is about one, else the published file's."""
    config = model.subject.config
    if NOT_EXPECTED in finding.title and config.expectations:
        binding = [one for one in config.expectations if one.severity is finding.severity]
        return (binding or list(config.expectations))[0].facts
    return config.published


def _source(finding: Finding) -> str:
    return "as the run expected" if NOT_EXPECTED in finding.title else "as published"


def _expected(finding: Finding, facts: ConfigFacts) -> dict[str, Any]:
    """By key: what it should be."""
    if finding.check == "sliding-window" and facts.window is not None:
        return {facts.window.key.rpartition(".")[2]: facts.window_in_force}
    if finding.check == "rms-norm-eps" and facts.eps is not None:
        return {facts.eps.key.rpartition(".")[2]: facts.eps.value}
    if finding.check == "layer-pattern" and facts.layer_kinds is not None:
        return {"layer_types": list(facts.layer_kinds)}
    if finding.check == "config-drift":
        key = finding.title.split()[0].rpartition(".")[2]
        value = technical(dict(facts.raw)).get(key)
        return {key: value} if value is not None else {}
    return {}


def rope(finding: Finding, model: Model) -> tuple[str, dict[str, Any]]:
    """Template and values for the frequencies that a model turns by.

    Raises:
        NoScript: the right ones are not known.
    """
    facts = _right(finding, model)
    expected = {}
    for kind in dict.fromkeys(compat.layer_kinds(model.loaded)):
        claim = facts.rope_of(kind)
        if claim is not None:
            expected[kind] = _angles(claim, _head_dim(kind, model), facts.max_positions)
    if not expected:
        raise NoScript("the right frequencies are not known")
    return "rope.jinja", {**model.values(), "expected": as_json(expected), "source": _source(finding)}


def _head_dim(kind: str, model: Model) -> int:
    """Size of one head; some families have others on full layers."""
    of_full = compat.base_value(model.loaded, "global_head_dim") if kind == FULL else None
    return int(of_full or compat.head_dim(model.loaded))


def _angles(claim: RopeClaim, head_dim: int, max_positions: int | None) -> dict[str, float]:
    """By pair: radians per token, of a few pairs that are turned."""
    claim = replace(claim, rope_type=claim.rope_type or "default")
    try:
        angles, _ = inverse_frequencies(claim, head_dim, max_positions)
    except ValueError as error:
        raise NoScript(f"the right frequencies are not known: {error}") from error
    turned = [index for index, angle in enumerate(angles) if angle > 0]
    chosen = sorted({turned[1 % len(turned)], turned[len(turned) // 2], turned[-1]})
    return {str(index): float(f"{angles[index]:.9g}") for index in chosen}
