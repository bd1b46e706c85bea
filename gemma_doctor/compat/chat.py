"""Conversations as the deployed chat template writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def has_chat_template(tokenizer: Any) -> bool:
    """A template lies beside the tokenizer. Releases before 4.44 had one for those that came without."""
    return bool(getattr(tokenizer, "chat_template", None))


def is_refusal(error: Exception) -> bool:
    """A template said no on purpose: its raise_exception raises this kind, mistakes in a template raise others."""
    return type(error).__name__ == "TemplateError"


def chat_ids(tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Token ids of a conversation and of the head of the answer, as serving code asks for them.

    From transformers 5 on a mapping comes back, before it a list. Whatever the template raises comes through.
    """
    made = tokenizer.apply_chat_template([{**one} for one in messages], add_generation_prompt=True, tokenize=True)
    ids = made["input_ids"] if isinstance(made, Mapping) or hasattr(made, "input_ids") else made
    return list(ids[0]) if ids and not isinstance(ids[0], int) else list(ids)


def chat_text(tokenizer: Any, messages: Sequence[Mapping[str, Any]], *, answer: bool = True) -> str:
    """The same as a text, without the head of the answer if it is not asked for."""
    made = tokenizer.apply_chat_template([{**one} for one in messages], add_generation_prompt=answer, tokenize=False)
    return str(made)
