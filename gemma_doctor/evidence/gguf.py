"""What a GGUF file says, beside what was loaded from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GgufKey:
    """One key of the file.

    Attributes:
        key: as in the file, e.g. "gemma3.block_count".
        written: its value; numbers are float32 there.
        loaded: what the library made of it, None if nothing.
        place: where that stands, e.g. "num_hidden_layers", "tokenizer.bos_token_id".
    """

    key: str
    written: Any
    loaded: Any
    place: str


@dataclass(frozen=True)
class GgufFacts:
    """The keys of a file that no other check compares with what was loaded.

    Attributes:
        config: of the model; the loaded value is that of the configuration.
        ids: of special tokens; the loaded value is the tokenizer's.
        added: "tokenizer.ggml.add_bos_token" and the like: whether the file wants the token around every text, and
            whether the tokenizer puts it there.
        tokens: how many the file lists, and how many the tokenizer has; None if it lists none.
        template: the chat template, cut; None if the file has none.
    """

    config: tuple[GgufKey, ...]
    ids: tuple[GgufKey, ...]
    added: tuple[GgufKey, ...]
    tokens: GgufKey | None
    template: GgufKey | None
