"""The rotation covers the context: positions past the trained length are scaled, by a scheme that the weights know.

What it proves
    The positions of the file are no more than the weights were trained for (the original length that it names beside
    its scaling, else the preset that it comes from), or a scaling or a larger theta makes up for the difference. Where
    theta or scaling are not that preset's, trained weights are asked: the loss of one text, shorter than they were
    trained for, under both rotations.

Why it matters
    max_position_embeddings is only a number: raising it teaches no weight anything. Past the trained length the slow
    pairs reach angles that were never seen, and the text comes apart. A theta that is not the trained one hurts at
    every length.

How to fix
    Use the scaling that the weights were trained or tuned with. Without any training the theta * s^(d / (d - 2)) that
    this check names stretches least badly; theta * s^(2 / d) changes next to nothing (10,000 becomes 10,017 for s = 32
    and d = 4,096). Or take the trained length back.

Known limits
    A fine-tune that was trained on longer texts with the same theta is warned of as well: the file does not say so.
    Layers that slide are left out, since no key is turned further than a window away; where a file alone does not say
    which layers slide, the full run does. Losses are compared on 1,024 tokens of English: what a stretch costs beyond
    the trained length is not measured. A difference counts beyond 0.01 nats (`least_cost`) and 4 standard errors
    (`standard_errors`) of the tokens' differences. On the Gemma 3 270M a theta changed by up to 10% cost at most 0.005
    nats and 2.1 standard errors (one stretch of docstrings, half of it tried on a second), one four times as large
    0.056. The 0.01 is chosen, above that noise.

References
    RoPE, arXiv:2104.09864; YaRN and NTK-aware scaling, arXiv:2309.00071, section 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gemma_doctor.check import CouldNotLook, NotApplicable, check
from gemma_doctor.evidence import FULL, Config, ConfigFacts, Lengths, ModelFacts, RopeClaim, RopeEffect, theta_in_words
from gemma_doctor.finding import Examined, Finding, Severity
from gemma_doctor.oracle import Trained, far_claim, is_scaled, ntk_theta, reach, stretch, trained

STANDARD_ERRORS = 4
LEAST_COST = 0.01  # nats a token; see Known limits


@check()
def rope_coverage(
    config: Config,
    facts: ModelFacts | None,
    lengths: Lengths | None,
    effect: RopeEffect | None,
    *,
    least_cost: float = LEAST_COST,
    standard_errors: float = STANDARD_ERRORS,
) -> Iterator[Finding | Examined]:
    """No context is stretched past the trained length without scaling; what a changed theta costs, measured."""
    written = _completed(config.published, facts)
    known, claim = trained(written, config.base), far_claim(written)
    if effect is not None and effect.of_base and effect.cost > max(least_cost, standard_errors * effect.noise):
        yield _worse(effect)
    if claim is None:
        raise NotApplicable("no layer that reads at any distance turns")
    if known is None or written.max_positions is None:
        raise NotApplicable("nobody says for what length it was trained" if known is None else "the file names no end")
    factor = stretch(written, config.base)
    if factor > 1 and facts is None and written.window_in_force is not None and written.layer_kinds is None:
        raise CouldNotLook("the file alone does not say which layers slide")
    if factor > 1:
        yield _stretched(written, known, claim, factor, _head_dim(written, facts), lengths, effect)
    yield from _longer(written, config.base, known, claim, lengths, _head_dim(written, facts))
    scaling = f", {claim.rope_type}" if is_scaled([claim]) else ""
    measured = f"; {effect}" if effect is not None and factor == 1 else ""
    yield Examined(1, f"{written.max_positions:,} positions{scaling}, {known.length:,} trained{measured}")


def _completed(published: ConfigFacts, facts: ModelFacts | None) -> ConfigFacts:
    """What the file leaves out of kinds of layers and rotation comes from the loaded configuration."""
    if facts is None:
        return published
    kinds = tuple(dict.fromkeys(layer.kind for layer in facts.layers))
    rope = {kind: _both(published.rope.get(kind), claim) for kind, claim in facts.loaded.rope.items()}
    return replace(published, layer_kinds=kinds, rope=rope)


def _both(written: RopeClaim | None, loaded: RopeClaim) -> RopeClaim:
    if written is None:
        return loaded
    return replace(
        loaded,
        theta=loaded.theta if written.theta is None else written.theta,
        rope_type=written.rope_type or loaded.rope_type,
        parameters={**loaded.parameters, **written.parameters},
    )


def _head_dim(written: ConfigFacts, facts: ModelFacts | None) -> int:
    if facts is not None:
        return facts.head_dim_of(FULL)
    derived = written.hidden_size // written.heads if written.hidden_size and written.heads else 0
    return written.global_head_dim or written.head_dim or derived


def _stretched(
    written: ConfigFacts,
    known: Trained,
    claim: RopeClaim,
    factor: float,
    head_dim: int,
    lengths: Lengths | None,
    effect: RopeEffect | None,
) -> Finding:
    """An error only where this very run goes there; else it is wrong on the condition that somebody does."""
    longest = max((one.tokens for one in lengths.wanted if one.of_this_run), default=0) if lengths else 0
    return Finding(
        title="the context is stretched past the trained length, and nothing scales the rotation",
        severity=Severity.ERROR if longest > known.length else Severity.WARNING,
        observed=f"{written.max_positions:,} positions with {claim}: wrong from position {known.length:,} on",
        expected=f"{known.length:,} positions ({known.origin}), or a scaling by {factor:.3g}",
        effect=str(effect) if effect is not None and not effect.of_base else "",
        do=f"publish the trained length, or a scaling the weights know{_without_training(claim, factor, head_dim)}",
        keys=(*written.written("max_position_embeddings"), claim.key),
        standing=True,
    )


def _without_training(claim: RopeClaim, factor: float, head_dim: int) -> str:
    theta = ntk_theta(claim, factor, head_dim)
    return f"; without training rope_theta={theta_in_words(round(theta))} (NTK-aware)" if theta else ""


def _longer(
    written: ConfigFacts,
    base: ConfigFacts | None,
    known: Trained,
    claim: RopeClaim,
    lengths: Lengths | None,
    head_dim: int,
) -> Iterator[Finding]:
    """What a longer text than there are positions would need; that it is too long is for context-length to say."""
    longest, limit = lengths.longest if lengths else None, reach(written, base)
    if longest is not None and limit is not None and longest.tokens > limit and not is_scaled([claim]):
        factor = longest.tokens / known.length
        yield Finding(
            title=f"{longest.by}: the rotation would have to be stretched",
            severity=Severity.NOTE,
            observed=f"{longest.tokens:,} tokens with {claim}",
            expected=f"{known.length:,} trained ({known.origin})",
            do=f"a scaling by {factor:.3g} that the weights know{_without_training(claim, factor, head_dim)}",
        )


def _worse(effect: RopeEffect) -> Finding:
    return Finding(
        title="the weights read text better with the rotation of the preset they come from",
        severity=Severity.WARNING,
        observed=f"{effect.cost:.3f} nats a token more with {effect.own} (standard error {effect.noise:.3f})",
        expected=f"no more than with {effect.other}",
        effect=str(effect),
        do="restore theta and scaling, unless longer texts are worth it to you",
        standing=True,
    )
