"""Adds up how long the texts are that a run and the subject's own settings ask for."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor import compat
from gemma_doctor.capture.tokens import Tokens
from gemma_doctor.evidence import Lengths, Wanted
from gemma_doctor.loading import Patient
from gemma_doctor.settings import Settings


def lengths(patient: Patient, text: Tokens, settings: Settings) -> Lengths:
    """What is asked for, in tokens; lengths that the tool chooses itself fit the model's positions and are left out."""
    longest = max((len(one.ids) for one in text.given), default=0)
    return Lengths(tuple(_wanted(patient, longest, settings)))


def _wanted(patient: Patient, longest: int, settings: Settings) -> Iterator[Wanted]:
    own = compat.own_limits(patient.model)
    new = settings.max_new_tokens
    if new is not None:
        yield Wanted("the prompt and --max-new-tokens" if longest else "--max-new-tokens", longest + new, True)
    elif longest:
        yield Wanted("the prompt", longest, True)
    if settings.length is not None:
        yield Wanted("--length", settings.length, True)
    for key, before in (("max_length", 0), ("max_new_tokens", longest)):
        if key in own:
            yield Wanted(f"{key} of the generation settings", before + own[key], False)
