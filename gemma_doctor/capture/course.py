"""What a long text is: its ids, where its facts stand, which of its tokens are scored. No forward is needed for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from gemma_doctor.capture.passes import Passes
from gemma_doctor.capture.planted import Encode, Question, planted
from gemma_doctor.check import CouldNotLook, NotApplicable
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import SLIDING, ConfigFacts

if TYPE_CHECKING:
    import torch

WINDOWS = 3
WITHOUT_WINDOW = 1024
# Of a longer window the text goes half of one beyond the edge: three of 4,096 take a 7B model half an hour on a CPU.
LONG_WINDOW = 1024
BEYOND = 256
LONGEST_EDGE, USUAL_EDGE = 4096, 1024  # nobody fills a window of 100,000, but the weights may want another
LARGEST_CHUNK = 256
SCORED = 64  # tokens of each region


@dataclass(frozen=True)
class Course:
    """What is run.

    Attributes:
        ids: of the text, shape (length,), on the CPU.
        body: tokens in front of the first question.
        questions: in order of distance.
        why_none: why there are none, "" if there are.
        edge: see `LongText.edge`.
        regions: name, first and last token of each region that the text has room for.
    """

    ids: torch.Tensor
    body: int
    questions: tuple[Question, ...]
    why_none: str
    edge: int | None
    regions: tuple[tuple[str, int, int], ...]

    @property
    def chunk(self) -> int:
        """Tokens per forward of the cached run; the edge falls between two of them and within none."""
        return max(1, min(LARGEST_CHUNK, (self.edge or LARGEST_CHUNK) // 2))

    @cached_property
    def columns(self) -> list[int]:
        """Of the scored tokens."""
        return [column for _, first, last in self.regions for column in range(first, last + 1)]

    @property
    def rows(self) -> list[int]:
        """Columns whose logits are wanted: in front of the scored tokens, then those that answer."""
        return [column - 1 for column in self.columns] + [one.column for one in self.questions]


def course(passes: Passes) -> Course:
    """The text of one patient that has a tokenizer.

    Raises:
        NotApplicable: there is nothing in it to score: no window to cross, and no facts.
        CouldNotLook: there is not so much text, or so little of it is asked for that nothing is scored.
    """
    patient = passes.patient
    tokenizer = patient.tokenizer
    assert tokenizer is not None
    edge = chosen_edge(patient.window, patient.subject.config.base)
    length = chosen_length(edge, passes.settings.length, passes.facts.loaded.max_positions)
    try:
        filler: list[int] = passes.text.exact(length + 1).tolist()
    except DoctorError as error:  # there is less text; what others have found stands
        raise CouldNotLook(error.message) from error
    bos = tokenizer.bos_token_id
    if bos is not None:
        filler = [bos, *filler[next(at for at, one in enumerate([*filler, None]) if one != bos) :]]
    made = laid_out(filler, lambda text: list(tokenizer(text, add_special_tokens=False)["input_ids"]), length, edge)
    if made.rows:
        return made
    if edge is None:
        raise NotApplicable(f"no window to cross, and no facts: {made.why_none}")
    raise CouldNotLook(f"a text of {length:,} tokens shows nothing around the edge of {edge:,}; {made.why_none}")


def chosen_edge(window: int | None, base: ConfigFacts | None) -> int | None:
    """See `LongText.edge`.

    Args:
        window: in force.
        base: the preset that the weights come from, if it is known.
    """
    slides = base is not None and (base.layer_kinds is None or SLIDING in base.layer_kinds)
    trained = base.window_in_force if base is not None and slides else None
    edges = [one for one in (window, trained) if isinstance(one, int) and one > 0]
    edge = min(edges, default=None)
    return USUAL_EDGE if edge is not None and edge > LONGEST_EDGE else edge


def chosen_length(edge: int | None, asked: int | None, most: int | None) -> int:
    """Tokens of the whole text.

    Args:
        asked: by the user.
        most: positions that the model has.
    """
    usual = WITHOUT_WINDOW if edge is None else WINDOWS * edge
    if edge is not None and edge > LONG_WINDOW:
        usual = edge + edge // 2 + BEYOND
    wanted = asked or usual
    return min(wanted, most) if most and most > 1 else wanted


def laid_out(filler: list[int], encode: Encode, length: int, edge: int | None) -> Course:
    """As of `planted`, and where its regions lie."""
    text = planted(filler, encode, length, edge)
    regions = () if edge is None else tuple(_regions(edge, text.body))
    return Course(text.ids, text.body, text.questions, text.why_none, edge, regions)


def _regions(edge: int, body: int) -> Iterator[tuple[str, int, int]]:
    size = min(SCORED, edge // 2)
    middle = edge + edge // 2
    for name, first in (
        ("before the edge", edge - size),
        ("after the edge", middle - size),
        ("beyond twice the edge", 2 * edge),
    ):
        if size > 0 and first > 0 and first + size <= body:
            yield name, first, first + size - 1
