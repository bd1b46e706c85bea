"""The special tokens that a tokenizer puts around a text, and those that end a generation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gemma_doctor.compat.configs import text_config
from gemma_doctor.compat.generation import end_tokens
from gemma_doctor.undone import attributes_set

PROBE = "a"
# Id of the token that ends a turn: of Gemma 1 and 2, and of those that came later, in which it is a line break.
TURN_END_OF_GEMMA_2, TURN_END_OF_GEMMA_3 = 107, 106


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


def end_tokens_of_another_generation(model: Any) -> list[int]:
    """What another generation of the family stops at: for Gemma its end of a turn, else the end of a text alone."""
    own, family = end_tokens(model), str(text_config(model).model_type)
    if family.startswith("gemma"):
        return [*own[:1], TURN_END_OF_GEMMA_3 if family in ("gemma", "gemma2") else TURN_END_OF_GEMMA_2]
    return own[:1]


@contextmanager
def end_tokens_set(model: Any, ids: list[int]) -> Iterator[None]:
    """Let other tokens end a generation."""
    with attributes_set([(model.generation_config, "eos_token_id", ids)]):
        yield
