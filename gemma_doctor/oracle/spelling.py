"""When a key is another one, misspelt."""

from __future__ import annotations

from collections.abc import Iterable

LETTERS_A_SLIP = 4  # a word as long may have one slip in it, one twice as long two, a shorter one none
MOST_SLIPS = 2


def misspelt(written: str, known: Iterable[str]) -> str:
    """The known key that `written` must have been meant to be, "" if there is none.

    Same letters with other separators or case; or the same words but for one, that is one or two slips of the hand
    away (a letter too few, too many, another one, or two that changed places). Whole words more or less are no slip:
    v_head_dim is another thing than head_dim.
    """
    return next((one for one in sorted(known) if one != written and _meant(written, one)), "")


def _meant(written: str, known: str) -> bool:
    if _letters(written) == _letters(known):
        return True
    words = list(zip(written.split("_"), known.split("_"), strict=False))
    if written.count("_") != known.count("_"):
        return False
    other = [(one, right) for one, right in words if one != right]
    return len(other) == 1 and _edits(*other[0]) <= min(len(other[0][1]) // LETTERS_A_SLIP, MOST_SLIPS)


def _letters(key: str) -> str:
    return "".join(letter for letter in key.casefold() if letter.isalnum())


def _edits(one: str, other: str) -> int:
    """Letters to insert, delete, replace, or swap with the next one (optimal string alignment)."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, start=1):
        here = [row]
        for column, right in enumerate(other, start=1):
            cost = min(last[column] + 1, here[-1] + 1, last[column - 1] + (letter != right))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == right:
                cost = min(cost, before[column - 2] + 1)
            here.append(cost)
        before, last = last, here
    return last[-1]
