from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gemma_doctor.evidence import CHOICES
from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab

PERIOD = 20  # tokens after which the text repeats


@route("if you use prompt lookup")
def prompt_lookup(lab: Lab) -> Iterator[Attempt]:
    """Prompt lookup: tokens drafted from the prompt's own repetitions."""
    for text in lab.texts(more=8):  # long enough to verify and reject several drafts after the first forward
        period = text.ids[:PERIOD]
        repeating = replace(text, ids=period.repeat(-(-len(text.ids) // PERIOD))[: len(text.ids)])
        attempt = lab.generate(
            repeating,
            compared=CHOICES,
            prompt_lookup_num_tokens=4,
            max_matching_ngram_size=1,
            among=period,  # what a skeleton writes of its own accord is hardly ever found in its prompt
        )
        yield replace(attempt, among=period)
