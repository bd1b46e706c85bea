"""Measures what a changed rotation does to trained weights: the loss of one text under both."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch

from gemma_doctor import compat
from gemma_doctor.capture.losses import measured
from gemma_doctor.capture.model_facts import rotary_tensors, text_decoder
from gemma_doctor.capture.tokens import Tokens
from gemma_doctor.check import NotApplicable
from gemma_doctor.evidence import FULL, Config, ConfigFacts, ModelFacts, RopeClaim, RopeEffect, frozen
from gemma_doctor.loading import Patient
from gemma_doctor.oracle import contradict, far_claim, inverse_frequencies, ntk_theta, stretch, trained
from gemma_doctor.settings import Progress

TOKENS = 1024


def rope_effect(patient: Patient, facts: ModelFacts, text: Tokens, progress: Progress) -> RopeEffect:
    """Loss with the subject's rotation, and with that of the preset it comes from, or that its stretch would need.

    Raises:
        NotApplicable: there is nothing to measure: random weights, or a rotation that nobody changed.
        CouldNotLook: the model raises on the text.
    """
    if patient.subject.weights != "real" or not facts.causal:
        raise NotApplicable("needs trained weights of a model that generates")
    config = patient.subject.config
    other, of_base = _changed(config, facts), True
    if not other:
        other, of_base = _needed(config, facts), False
    if not other:
        raise NotApplicable("nobody changed the rotation")
    known = trained(config.published, config.base)
    length = min(TOKENS, known.length if known else TOKENS, facts.loaded.max_positions or TOKENS)
    progress(f"what the rotation does to the weights: {length:,} tokens, twice")
    ids = text.exact(length)
    own = measured(patient.model, ids)
    with ExitStack() as stack:
        _built_with(stack, patient.model, facts, other)
        under = measured(patient.model, ids)
    loaded = {kind: facts.loaded.rope_of(kind) for kind in other}
    return RopeEffect(
        own=_in_words(loaded),
        other=_in_words(other) + (f" ({config.base.origin})" if of_base and config.base else " (NTK-aware)"),
        of_base=of_base,
        own_losses=frozen(own.double().numpy()),
        other_losses=frozen(under.double().numpy()),
        source=text.source_of(length),
    )


def _changed(config: Config, facts: ModelFacts) -> dict[str, RopeClaim]:
    """The base's rotary parameters, by kind of layers, where the loaded ones contradict them."""
    if config.base is None:
        return {}
    kinds = dict.fromkeys(buffer.kind for buffer in facts.rotary)
    pairs = {kind: (_whole(config.base, kind), _whole(facts.loaded, kind)) for kind in kinds}
    return {kind: base for kind, (base, own) in pairs.items() if base and own and contradict(base, own)}


def _whole(facts: ConfigFacts, kind: str) -> RopeClaim | None:
    """What a file says that names a theta and no scaling: that there is none. One without a theta says too little."""
    claim = facts.rope_of(kind)
    if claim is None or claim.theta is None:
        return None
    return replace(claim, rope_type=claim.rope_type or "default")


def _needed(config: Config, facts: ModelFacts) -> dict[str, RopeClaim]:
    """The parameters that a stretch without scaling would need, by kind of layers."""
    factor, claim = stretch(config.published, config.base), far_claim(facts.loaded)
    if factor <= 1 or claim is None:
        return {}
    theta = ntk_theta(claim, factor, facts.head_dim_of(FULL))
    if theta is None:
        return {}
    needed = replace(claim, theta=float(round(theta)), rope_type=claim.rope_type or "default")
    return {buffer.kind: needed for buffer in facts.rotary if buffer.kind in (FULL, "")}


def _built_with(stack: ExitStack, model: Any, facts: ModelFacts, other: Mapping[str, RopeClaim]) -> None:
    """Let rotary tables be as if built from other parameters, until the stack is closed."""
    decoder = text_decoder(model)
    for name, kind, tensor in rotary_tensors(model):
        if kind in other:
            values, factor = inverse_frequencies(other[kind], facts.head_dim_of(kind), facts.loaded.max_positions)
            table = torch.tensor(values, dtype=tensor.dtype)
            stack.enter_context(compat.rotary_table_replaced(decoder, name, table, factor))


def _in_words(claims: Mapping[str, RopeClaim | None]) -> str:
    return " and ".join(dict.fromkeys(str(claim) for claim in claims.values()))
