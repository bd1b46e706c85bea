"""Tokenizers: the special tokens that are put around a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PROBE = "a"


def special_tokens_around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Ids that a tokenizer puts in front of a text and behind it."""
    text = tokenizer(PROBE, add_special_tokens=False).input_ids
    whole = tokenizer(PROBE).input_ids
    start = next((i for i in range(len(whole)) if whole[i : i + len(text)] == text), 0)
    return whole[:start], whole[start + len(text) :]


def takes_special_tokens(tokenizer: Any) -> bool:
    """Its special tokens come from a template that can be replaced: those written in Python have none."""
    return hasattr(tokenizer, "backend_tokenizer")


def put_special_tokens_around(tokenizer: Any, before: Sequence[int], after: Sequence[int]) -> None:
    """Let a tokenizer put other ids in front of every text and behind it, unless it is told to add none."""
    from tokenizers import processors

    names = {one: tokenizer.convert_ids_to_tokens(one) for one in (*before, *after)}

    def around(sequence: str, kind: int) -> list[str]:
        pieces = [names[one] for one in before], [names[one] for one in after]
        return [f"{one}:{kind}" for one in (*pieces[0], sequence, *pieces[1])]

    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=around("$A", 0),
        pair=[*around("$A", 0), *around("$B", 1)],
        special_tokens=[(name, one) for one, name in names.items()],
    )
