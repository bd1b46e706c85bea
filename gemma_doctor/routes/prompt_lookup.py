from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gemma_doctor.evidence import CHOICES
from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt, Text
    from gemma_doctor.capture.lab import Lab

PERIOD = 20  # tokens after which the text repeats; with fewer, what a skeleton writes is rarely found among them


@route("if you use prompt lookup")
def prompt_lookup(lab: Lab) -> Iterator[Attempt]:
    """Prompt lookup: tokens drafted from the prompt's own repetitions."""
    for text in lab.texts(more=8):  # long enough to verify and reject several drafts after the first forward
        yield lab.generate(_repeating(text), compared=CHOICES, prompt_lookup_num_tokens=4, max_matching_ngram_size=1)


def _repeating(text: Text) -> Text:
    """A text of the same lengths that repeats itself, so that there is something to look up."""
    return replace(text, ids=text.ids[:PERIOD].repeat(-(-len(text.ids) // PERIOD))[: len(text.ids)])
