from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from gemma_doctor.evidence import CHOICES
from gemma_doctor.routes import route

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab


@route("if you use prompt lookup")
def prompt_lookup(lab: Lab) -> Iterator[Attempt]:
    """Prompt lookup: tokens drafted from the prompt's own repetitions."""
    # a prompt is looked up in for longer, so that drafts are rolled back beyond the edge; the others cross it
    for text in (*lab.texts(more=8, only=1), *islice(lab.texts(more=3), 1, None)):
        yield lab.generate(lab.repeating(text), compared=CHOICES, prompt_lookup_num_tokens=4, max_matching_ngram_size=1)
