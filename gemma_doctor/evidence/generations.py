"""What was generated, and what the reference route would have put at the same positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gemma_doctor.evidence.arrays import Bools, Floats, Ints, frozen
from gemma_doctor.evidence.running import Crash

GREEDY = "greedy, end tokens suppressed"
OF_SERVED = "as served: "  # in front of a prompt's name, and of the settings in `Generation.way`


def _no_numbers() -> Floats:
    return frozen(np.zeros(0))


@dataclass(frozen=True)
class Generation:
    """One generation.

    Attributes:
        window: W in force, None if the model has none.
        prompt_length: tokens of the prompt.
        margin: new tokens wanted after the edge.
        tokens: generated ids, shape (generated,).
        reference: the reference route's top token at the same positions (teacher-forced), shape (generated,).
        clear: where the reference's gap between the two tokens exceeds 2 floors, shape (generated,); nowhere if tokens
            were drawn. A subject's own settings may choose another token than the likeliest.
        crash: exception, if one ended it.
        pass_name: its pass in `Trace`.
        not_finite: first step whose logits held NaN or infinity, None if none did.
        bad_weight: name of the first parameter that holds NaN or infinity, "" if none does; looked for only when logits
            are not finite.
        no_reference: why the reference route could not be run, "" if it was.
        way: how it was asked for, in words: "greedy, end tokens suppressed", or what the subject's own settings say.
        settings: of the subject's own those that choose other tokens than the likeliest, by name; none if greedy.
        entropy: of the next-token distribution at each step, in nats, shape (generated,); empty where not known.
        reference_entropy: of the reference route's at the same positions; empty where not known.
        ended_by: the end token that ended it, None if none did.
    """

    window: int | None
    prompt_length: int
    margin: int
    tokens: Ints
    reference: Ints
    clear: Bools
    crash: Crash | None
    pass_name: str
    not_finite: int | None = None
    bad_weight: str = ""
    no_reference: str = ""
    way: str = GREEDY
    settings: Mapping[str, object] = field(default_factory=dict)
    entropy: Floats = field(default_factory=_no_numbers)
    reference_entropy: Floats = field(default_factory=_no_numbers)
    ended_by: int | None = None

    @property
    def drawn(self) -> bool:
        """Tokens were drawn at random."""
        return bool(self.settings.get("do_sample"))


@dataclass(frozen=True)
class Generations:
    """Everything that was generated on its own prompt.

    Attributes:
        all: the long generation first; then one for each further prompt; then one for each conversation as the
            subject's own settings say, or, if those say something else than greedy, one of the first prompt.
    """

    all: tuple[Generation, ...]
