"""How long a text may be before the rotation of its tokens is one that the weights never saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gemma_doctor.evidence import FULL, SLIDING
from gemma_doctor.oracle.rotation import inverse_frequencies

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gemma_doctor.evidence import ConfigFacts, Floats, ModelFacts, RopeClaim

TURN_SLIDING_ONLY = ("cohere2",)
FOLLOW_THE_LENGTH = ("dynamic", "longrope")
ORIGINAL = "original_max_position_embeddings"
LONGEST = 10**12  # a factor beyond any that makes sense must not overflow


def lengths_apart(claim: RopeClaim | None, end: int) -> tuple[int, ...]:
    """Lengths of text, ascending, one for each way in which a scaling turns; `end` alone where it has one way only.

    Args:
        claim: rotary parameters, None if they are not known.
        end: number of positions.
    """
    if claim is None:
        return (end,)
    original, factor = _number(claim.parameters.get(ORIGINAL)), _number(claim.parameters.get("factor"))
    if claim.rope_type == "longrope" and original and 1 < original < end:
        return int(original), end
    if claim.rope_type == "dynamic" and factor and factor > 1:
        return end, min(int(end * factor), LONGEST)
    return (end,)


def live_frequencies(facts: ModelFacts, kind: str, length: int) -> Floats | None:
    """That layers of a kind turn by, in a forward up to `length` positions; None if they are not known.

    They are the model's own, right or wrong, so that only the position is judged. Those that follow the length are
    computed from the loaded configuration.
    """
    claim = facts.loaded.rope_of(kind)
    if claim is None or claim.rope_type not in FOLLOW_THE_LENGTH:
        return next((buffer.values for buffer in facts.rotary if buffer.kind in (kind, "")), None)
    head_dim = facts.head_dim_of(kind)
    try:
        return inverse_frequencies(claim, head_dim, facts.loaded.max_positions, length)[0]
    except ValueError:
        return None


def ntk_theta(claim: RopeClaim, stretch: float, head_dim: int) -> float | None:
    """The theta at which the slowest pair turns as far over a context `stretch` times as long; None if none is known.

    theta * s^(d / (d - 2)), d = rotated part of a head (NTK-aware scaling: YaRN, arXiv:2309.00071, section 3.1).
    theta * s^(2 / d), which is copied about, changes nothing: 10,000 becomes 10,017 for s = 32 and d = 4,096.
    """
    part = _number(claim.parameters.get("partial_rotary_factor")) or 1.0
    dim = head_dim if claim.rope_type == "proportional" else int(head_dim * part)
    pairs = int(head_dim * part) // 2
    if claim.theta is None or pairs < 2:
        return None
    return float(claim.theta * stretch ** (dim / (2 * (pairs - 1))))


@dataclass(frozen=True)
class Trained:
    """The length of text that weights were trained for.

    Attributes:
        length: positions.
        origin: who says so.
    """

    length: int
    origin: str


def trained(facts: ConfigFacts, base: ConfigFacts | None) -> Trained | None:
    """As the file says beside its scaling, else as the preset that it comes from publishes; None if neither does."""
    for claim in facts.rope.values():
        original = _number(claim.parameters.get(ORIGINAL))
        if original:
            return Trained(int(original), f"{ORIGINAL} in {facts.origin}")
    if base is None or base.max_positions is None:
        return None
    return Trained(base.max_positions, base.origin)


def turns(facts: ConfigFacts, index: int, kind: str) -> bool:
    """One layer turns its queries and keys; some families leave layers without any position."""
    rotated = facts.raw.get("no_rope_layers")  # SmolLM3 and Llama 4, whatever the key's name says: 0 does not turn
    if isinstance(rotated, (list, tuple)) and index < len(rotated):
        return bool(rotated[index])
    return facts.family not in TURN_SLIDING_ONLY or kind == SLIDING


def far_claim(facts: ConfigFacts) -> RopeClaim | None:
    """Rotary parameters of the layers that read tokens at any distance; None if there are none, or none is named.

    Layers that slide never turn a key further than a window away, however long the text is. Cohere 2 turns no others.
    """
    if facts.family in TURN_SLIDING_ONLY or (facts.layer_kinds is not None and FULL not in facts.layer_kinds):
        return None
    return facts.rope_of(FULL)


def stretch(facts: ConfigFacts, base: ConfigFacts | None) -> float:
    """How many times as many positions a file has as its weights were trained for, with nothing to make up for it.

    1 where there is no stretch, where it is scaled, where theta was raised as well, or where nothing is known of it.
    """
    known, claim = trained(facts, base), far_claim(facts)
    if known is None or claim is None or facts.max_positions is None or is_scaled([claim]):
        return 1.0
    before = far_claim(base) if base is not None else None
    if before is not None and before.theta is not None and claim.theta is not None and claim.theta > before.theta:
        return 1.0
    return max(facts.max_positions / known.length, 1.0)


def made_for(facts: ConfigFacts) -> int | None:
    """Positions that scaling stretches the trained ones to: factor times original length. None where that is not said.

    Only yarn and longrope write both for this purpose. Llama 3.1 publishes 131,072 positions with factor 8 and 8,192
    original ones, and means it.
    """
    lengths = [_stretched(claim) for claim in facts.rope.values() if claim.rope_type in ("yarn", "longrope")]
    return max((length for length in lengths if length), default=None)


def _stretched(claim: RopeClaim) -> int | None:
    original, factor = _number(claim.parameters.get(ORIGINAL)), _number(claim.parameters.get("factor"))
    return round(min(original * factor, LONGEST)) if original and factor else None


def reach(facts: ConfigFacts, base: ConfigFacts | None = None) -> int | None:
    """The number of positions that a model may be used for; None if it does not say.

    That is max_position_embeddings. Where scaling was laid over a published configuration and the positions left alone,
    as many model cards say to do, it is what the scaling makes of them.

    Args:
        facts: as published or as loaded.
        base: the preset that it comes from.
    """
    end = facts.max_positions
    if end is None or end < 1:
        return None
    return max([end, *(_scaled(claim, end, facts, base) for claim in facts.rope.values())])


def _scaled(claim: RopeClaim, end: int, facts: ConfigFacts, base: ConfigFacts | None) -> int:
    factor = _number(claim.parameters.get("factor"))
    if not factor or factor <= 1 or claim.rope_type in ("", "default", "proportional"):
        return end
    if claim.rope_type == "dynamic":
        return round(min(end * factor, LONGEST))
    if _stretched(claim) is not None:
        return _stretched(claim) or end
    added = base is not None and base.max_positions == facts.max_positions and not is_scaled(base.rope.values())
    return round(min(end * factor, LONGEST)) if added else end


def is_scaled(claims: Iterable[RopeClaim]) -> bool:
    """Some layers turn otherwise than their theta alone says, in texts of some length."""
    return any(one.rope_type not in ("", "default", "proportional") for one in claims)


def _number(value: object) -> float | None:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < LONGEST
    return float(value) if usable else None  # type: ignore[arg-type]
