"""A long text with a few facts in it at several depths, and questions for them at its end.

The wording was measured on the Gemma 3 270M over three stretches of docstrings, six depths inside and beyond the
window: asked like this the right answer came first in 18 of 18 cases; "The code word of the red box is copper." gave
16, "The password for the red door is copper." 18 with lower probabilities, "The red box is made of copper." 17.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

STATEMENT = "\n\nRemember: the secret word for {name} is{answer}.\n\n"
QUESTION = "\n\nQuestion: what is the secret word for {name}? Answer: the secret word for {name} is"
NAMES = ("red", "green", "yellow", "purple", "white", "black", "orange", "brown")
# Each is one token of Gemma's; of another tokenizer those are taken that are.
ANSWERS = (" copper", " silver", " marble", " cotton", " timber", " rubber", " velvet", " amber", " iron", " glass")
FEWEST = 4  # answers to choose from
FIRST = 16  # tokens of text before the first fact
INSIDE = (0.25, 0.5, 0.75)  # of the edge
BEYOND = 1.25

Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Question:
    """Where a fact is asked for.

    Attributes:
        column: of the token whose logits answer; the answer itself stands in the next one.
        answer: its token id.
        distance: tokens from where the answer stands in the text to where it is asked for.
    """

    column: int
    answer: int
    distance: int


@dataclass(frozen=True)
class Planted:
    """The text.

    Attributes:
        ids: shape (length,).
        body: tokens in front of the first question.
        questions: in order of distance.
        why_none: why there are none, "" if there are.
    """

    ids: torch.Tensor
    body: int
    questions: tuple[Question, ...]
    why_none: str = ""


@dataclass(frozen=True)
class _Piece:
    """A statement or a question with its answer, as ids; `at` is the answer's place among them."""

    ids: list[int]
    at: int


def planted(filler: Sequence[int], encode: Encode, length: int, edge: int | None) -> Planted:
    """Facts and questions put into a text.

    Args:
        filler: ids of the text, BOS first, at least `length`.
        encode: from text to ids, without special tokens.
        length: of the whole.
        edge: what lies further back than this many tokens is beyond the window; three facts lie inside of it.
    """
    answers = _answers(encode)
    pieces = [
        (_piece(encode, STATEMENT, name, answer), _piece(encode, QUESTION + "{answer}.", name, answer))
        for name, answer in zip(NAMES, answers, strict=False)
    ]
    room = length - FIRST - sum(len(said.ids) + len(asked.ids) for said, asked in pieces)
    if len(answers) < FEWEST or room < length // 4:
        why = f"the tokenizer has single tokens for {len(answers)} of the {len(ANSWERS)} answers"
        why = f"{length:,} tokens are too few for facts and questions" if len(answers) >= FEWEST else why
        return Planted(torch.tensor(filler[:length]), length, (), why)
    tail = sum(len(asked.ids) for _, asked in pieces)
    body = length - tail
    starts = [body + sum(len(asked.ids) for _, asked in pieces[:index]) for index in range(len(pieces))]
    columns = [start + asked.at for start, (_, asked) in zip(starts, pieces, strict=True)]
    wanted = [
        column - distance - said.at
        for column, distance, (said, _) in zip(
            columns, distances(len(pieces), columns[-1] - FIRST, edge), pieces, strict=True
        )
    ]
    ids, places = _laid_out(list(filler), [said for said, _ in pieces], wanted, body)
    ids += [one for _, asked in pieces for one in asked.ids]
    questions = (
        Question(column - 1, asked.ids[asked.at], column - place)
        for column, place, (_, asked) in zip(columns, places, pieces, strict=True)
    )
    return Planted(torch.tensor(ids), body, tuple(questions))


def distances(count: int, farthest: int, edge: int | None) -> list[int]:
    """How far back the facts should lie, ascending: some inside the edge, the others from beyond it to the start."""
    if edge is None or farthest < BEYOND * edge:
        return _spread(count, max(1, farthest // 16), farthest)
    inside = [int(share * edge) for share in INSIDE]
    return inside + _spread(count - len(inside), int(BEYOND * edge), farthest)


def _spread(count: int, first: int, last: int) -> list[int]:
    """So many numbers from first to last, each the same multiple of the one before."""
    ratio = (last / first) ** (1 / max(count - 1, 1))
    return [round(first * ratio**step) for step in range(count)]


def _answers(encode: Encode) -> list[str]:
    """Those that are one token where they are asked for, and no two the same."""
    found: dict[int, str] = {}
    question = encode(QUESTION.format(name=NAMES[0]))
    for answer in ANSWERS:
        ids = encode(QUESTION.format(name=NAMES[0]) + answer)
        if ids[:-1] == question:
            found.setdefault(ids[-1], answer)
    return list(found.values())[: len(NAMES)]


def _piece(encode: Encode, template: str, name: str, answer: str) -> _Piece:
    """A piece of text with the answer, cut into tokens as a whole."""
    head, _, rest = template.partition("{answer}")
    before = encode(head.format(name=name) + answer)
    return _Piece(before + encode(rest), len(before) - 1)


def _laid_out(filler: list[int], said: list[_Piece], wanted: list[int], body: int) -> tuple[list[int], list[int]]:
    """The text up to its first question, and where each statement's answer stands in it.

    A statement stands where it is wanted, or as soon after it as the one before it ends, or as there is room.
    """
    ids, taken, places = list[int](), 0, [0] * len(said)
    order = sorted(range(len(said)), key=lambda index: wanted[index])
    left = sum(len(one.ids) for one in said)
    for index in order:
        start = min(max(wanted[index], len(ids), FIRST), body - left)
        ids += filler[taken : taken + start - len(ids)]
        taken = start - sum(len(said[one].ids) for one in order[: order.index(index)])
        places[index] = len(ids) + said[index].at
        ids += said[index].ids
        left -= len(said[index].ids)
    return ids + filler[taken : taken + body - len(ids)], places
