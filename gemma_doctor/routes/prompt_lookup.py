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
DRAFTED = 4
SHIFTS = (0, 3, 7, 12)  # what may be chosen: how the period goes on, here and so much further on in it


@route("if you use prompt lookup")
def prompt_lookup(lab: Lab) -> Iterator[Attempt]:
    """Prompt lookup: tokens drafted from the prompt's own repetitions.

    What a skeleton writes of its own accord is hardly ever found in its prompt, and nothing would be drafted. So it
    chooses among a few tokens of it: how the repetition goes on here, and how it goes on elsewhere. Whichever comes out
    is found, what follows it is drafted, and may come out or not.
    """
    for text in lab.texts(more=8):  # long enough to verify and reject several drafts after the first forward
        columns = range(text.prompt + text.new + DRAFTED)
        places = text.ids.new_tensor([[(column + shift) % PERIOD for shift in SHIFTS] for column in columns])
        among = text.ids[places % len(text.ids)]
        attempt = lab.generate(
            replace(text, ids=among[: len(text.ids), 0]),
            compared=CHOICES,
            prompt_lookup_num_tokens=DRAFTED,
            max_matching_ngram_size=1,
            among=among[text.prompt :],
        )
        yield replace(attempt, among=among[text.prompt :])
