"""When two numbers, or two claims, say the same; and from where on a difference counts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemma_doctor.evidence import RopeClaim

# Distance from 1 to the next number, by torch dtype name.
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}

LARGEST_FLOAT32 = 2.0**128
# Beyond any that was trained; float32 holds its powers, and a report can print it.
LARGEST_THETA = 1e15

FINDING_FLOORS = 4  # logits differ when they lie more than this many noise floors apart
FLIP_FLOORS = 2  # another top token counts when the reference tells the two apart by more than this many

# Of the common words that stand in a vocabulary so many come out whole. Healthy ones gave 99.99 % and more, those read
# without their merges none to 4 %.
WHOLE_WORDS = 0.9


def agree(a: float, b: float) -> bool:
    """Equal as far as float32 can tell. A GGUF file's 9.999999974752427e-07 is 1e-06."""
    return math.isclose(a, b, rel_tol=EPSILON["float32"])


def same(a: object, b: object) -> bool:
    """Numbers agree, lists item by item; all else is equal."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return agree(a, b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def contradict(a: RopeClaim, b: RopeClaim) -> bool:
    """Something that both claims name is not the same."""
    pairs: list[tuple[object, object]] = []
    if a.theta is not None and b.theta is not None:
        pairs.append((a.theta, b.theta))
    if a.rope_type and b.rope_type:
        pairs.append((a.rope_type, b.rope_type))
    pairs += [(a.parameters[key], b.parameters[key]) for key in a.parameters.keys() & b.parameters.keys()]
    return not all(same(one, other) for one, other in pairs)


def usable_epsilon(value: object) -> bool:
    """A number above 0 that float32 holds."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < LARGEST_FLOAT32


def usable_theta(claim: RopeClaim) -> bool:
    """The claim names no theta, or one that frequencies can be computed from.

    A theta that is no number at all is kept among the parameters.
    """
    return "rope_theta" not in claim.parameters and (claim.theta is None or 0 < claim.theta <= LARGEST_THETA)
