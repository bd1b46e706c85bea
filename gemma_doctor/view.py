"""What a heatmap is asked to show: positions, layers, heads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gemma_doctor.errors import DoctorError, suggest
from gemma_doctor.evidence import FULL, SLIDING

KIND_WORDS = {"sliding": SLIDING, "full": FULL}


@dataclass(frozen=True, kw_only=True)
class View:
    """What to show.

    Attributes:
        pos: an index ("1000", "-1") or a slice ("990:1010", "-20:") of positions.
        layers: "all", "sliding", "full", or indices ("0,5,11").
        heads: "mean", "max", "all", or indices ("0,3").
        kind: "attention", "mask" or "influence".
        rows_at: "decode" (what generation uses) or "prefill" (what scoring uses).
        scale: "log" or "linear" colours.
        pads: left pads in front of the text.
    """

    pos: str = "-1"
    layers: str = "all"
    heads: str = "mean"
    kind: str = "attention"
    rows_at: str = "decode"
    scale: str = "log"
    pads: int = 0


CHOICES = {"kind": ("attention", "mask", "influence"), "rows_at": ("decode", "prefill"), "scale": ("log", "linear")}
MOST_PADS = 100_000


def view(given: Mapping[str, object]) -> View:
    """A View of what was given on the command line, by field name.

    Raises:
        DoctorError: a word that is none of the choices, or pads that are no number.
    """
    words = {name: str(value) for name, value in given.items()}
    for name, choices in CHOICES.items():
        if words.get(name, choices[0]) not in choices:
            near = suggest(words[name], choices)
            raise DoctorError(
                f"--{name.replace('_', '-')} {words[name]}: not known{near}", f"one of {', '.join(choices)}"
            )
    unused = [name for name in ("layers", "heads", "rows_at") if name in words and words.get("kind") == "influence"]
    if unused:
        flag = f"--{unused[0].replace('_', '-')}"
        raise DoctorError(f"{flag} has no meaning with --kind influence", "which is of the whole stack: leave it out")
    pads = words.pop("pads", "0")
    if not re.fullmatch(r"\d{1,6}", pads) or int(pads) > MOST_PADS:
        raise DoctorError(f"--pads {pads}: no number of pads", f"0 to {MOST_PADS}")
    return View(**words, pads=int(pads))


def positions(pos: str, length: int, limit: int | None) -> range:
    """The positions that `pos` means.

    Args:
        pos: as in View.
        length: tokens of the text from whose end negative indices count; beyond it the text is filled.
        limit: positions that the model has, None if it names none.

    Raises:
        DoctorError: not an index or a slice, empty, or out of range; with the valid range.
    """
    index, span = re.fullmatch(r"[+-]?\d{1,9}", pos), re.fullmatch(r"([+-]?\d{1,9})?:([+-]?\d{1,9})?", pos)
    valid = f"valid are {-length} to {limit - 1}" if limit else f"valid are {-length} and more"
    if index:
        first, end = int(pos), int(pos) + 1
        wanted = range(first + length, end + length) if first < 0 else range(first, end)
    elif span:
        first, end = (int(part) if part else default for part, default in zip(span.groups(), (0, length), strict=True))
        wanted = range(*(one + length if one < 0 else one for one in (first, end)))
    else:
        raise DoctorError(f"--pos {pos}: no position", "an index (1000, -1) or a slice (990:1010)")
    if wanted.start < 0 or (limit is not None and wanted.stop > limit):
        raise DoctorError(f"--pos {pos}: there is no such position", f"{valid} (the text has {length:,} tokens)")
    if not wanted:
        raise DoctorError(f"--pos {pos}: no position at all", "a slice goes from a smaller to a larger position")
    return wanted


def layers(words: str, kinds: Sequence[str]) -> tuple[int, ...]:
    """The layers that `words` mean, ascending.

    Args:
        words: as in View.
        kinds: kind of every layer.

    Raises:
        DoctorError: no such layer or kind, with what there is.
    """
    if words == "all":
        return tuple(range(len(kinds)))
    if words in KIND_WORDS:
        found = tuple(index for index, kind in enumerate(kinds) if kind == KIND_WORDS[words])
        if not found:
            raise DoctorError(
                f"--layers {words}: this model has none", f"its layers are {', '.join(sorted(set(kinds)))}"
            )
        return found
    return _indices("--layers", words, len(kinds), "all, sliding, full")


def heads(words: str, count: int) -> tuple[int, ...] | None:
    """The heads that `words` mean, ascending; None for a reduction over all ("mean", "max").

    Raises:
        DoctorError: no such head, with what there is.
    """
    if words in ("mean", "max"):
        return None
    return tuple(range(count)) if words == "all" else _indices("--heads", words, count, "mean, max, all")


def _indices(flag: str, words: str, count: int, others: str) -> tuple[int, ...]:
    parts = [part.strip() for part in words.split(",")]
    if not all(re.fullmatch(r"\d{1,6}", part) for part in parts):
        raise DoctorError(f"{flag} {words}: not understood", f"{others}, or numbers from 0 to {count - 1}: 0,1")
    beyond = [part for part in parts if int(part) >= count]
    if beyond:
        raise DoctorError(f"{flag} {words}: there is no {beyond[0]}", f"valid are 0 to {count - 1}")
    return tuple(sorted({int(part) for part in parts}))
