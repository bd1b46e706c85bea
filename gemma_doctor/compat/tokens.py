"""What a tokenizer makes of texts, the special tokens that it puts around them, and those that end a generation."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gemma_doctor.compat.configs import text_config
from gemma_doctor.compat.generation import end_tokens
from gemma_doctor.undone import attributes_set

ANY_TEXT = "a"
# Id of the token that ends a turn: of Gemma 1 and 2, and of those that came later, in which it is a line break.
TURN_END_OF_GEMMA_2, TURN_END_OF_GEMMA_3 = 107, 106
UNLIMITED = 10**9  # a model_max_length beyond it is the library's placeholder for "no limit"
POST_PROCESSOR = 2000  # characters of a saved post-processor in which its BOS would stand
BYTE_PIECE = re.compile(r"<0x[0-9A-F]{2}>")


def special_tokens_around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Ids that a tokenizer puts in front of a text and behind it."""
    text = tokenizer(ANY_TEXT, add_special_tokens=False).input_ids
    whole = tokenizer(ANY_TEXT).input_ids
    start = next((i for i in range(len(whole)) if whole[i : i + len(text)] == text), 0)
    return whole[:start], whole[start + len(text) :]


def plain_ids(tokenizer: Any, text: str, **options: Any) -> list[int]:
    """Ids of one text."""
    return list(tokenizer(text, **options)["input_ids"])


def ids_of_each(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Ids of several texts, each by itself and without special tokens."""
    return [list(ids) for ids in tokenizer(list(texts), add_special_tokens=False)["input_ids"]] if texts else []


def text_of(tokenizer: Any, ids: Sequence[int]) -> str:
    """Ids as text, special tokens included, with nothing tidied up."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def normalised(tokenizer: Any, text: str) -> str:
    """A text as the tokenizer's own normaliser writes it; those in Python have none, and are held to less."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return " ".join(unicodedata.normalize("NFKC", text).split())
    return text if backend.normalizer is None else str(backend.normalizer.normalize_str(text))


def named_tokens(tokenizer: Any) -> dict[str, int]:
    """Tokens that a tokenizer names for some purpose: BOS, EOS, pad ..."""
    return {one: int(tokenizer.convert_tokens_to_ids(one)) for one in map(str, tokenizer.all_special_tokens)}


def is_marker(tokenizer: Any, token: str) -> bool:
    """A token is no piece of text: special, or written like a marker (few are special in a vocabulary read from GGUF).

    Added tokens need not be: Gemma's runs of line breaks are some.
    """
    written = re.fullmatch(r"<[^<>\s]+>|\[[A-Za-z0-9_/]+\]", token) and not BYTE_PIECE.fullmatch(token)
    return bool(written) or any(one.special and one.content == token for one in tokenizer.added_tokens_decoder.values())


def longest_text(tokenizer: Any) -> int | None:
    """model_max_length, None where it stands for no limit."""
    limit = tokenizer.model_max_length
    return int(limit) if limit is not None and limit < UNLIMITED else None


def asks_for_bos(tokenizer: Any) -> str:
    """Which setting that was saved with a tokenizer asks for BOS in front of every text, "" if none does.

    The object itself says add_bos_token False in releases that put one, and reads the key in others: the files count.
    """
    folder = Path(str(tokenizer.name_or_path))
    with suppress(OSError, ValueError):
        saved = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        if isinstance(saved, dict) and saved.get("add_bos_token") is True:
            return "add_bos_token in tokenizer_config.json"
        if isinstance(saved, dict) and saved.get("add_bos_token") is False:
            return ""
    with suppress(OSError, ValueError):  # tens of megabytes, most of them merges: not parsed
        text = (folder / "tokenizer.json").read_text(encoding="utf-8")
        start = text.index('"post_processor"')
        written = text[start : start + POST_PROCESSOR].split('"decoder"')[0]
        if f'"id": {json.dumps(str(tokenizer.bos_token), ensure_ascii=False)}' in written:
            return "the post-processor in tokenizer.json"
    return ""


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


def joins_pieces(tokenizer: Any) -> bool:
    """Its words are joined from pieces by merges, which can be left out."""
    from tokenizers import models

    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend is not None and isinstance(backend.model, models.BPE)


def leave_pieces_apart(tokenizer: Any) -> None:
    """Let a tokenizer join no pieces any more: every merge is dropped."""
    tokenizer.backend_tokenizer.model.dropout = 1.0


def split_special_token(tokenizer: Any, token: str) -> None:
    """Let a tokenizer read the text of one of its added tokens as any other text."""
    from tokenizers import Tokenizer

    written = json.loads(tokenizer.backend_tokenizer.to_str())
    written["added_tokens"] = [one for one in written["added_tokens"] if one["content"] != token]
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(written))


def end_tokens_of_another_generation(model: Any) -> list[int]:
    """What another generation of the family stops at: for Gemma its end of a turn, else the end of a text alone."""
    own, family = end_tokens(model), str(text_config(model).model_type)
    if family.startswith("gemma"):
        return [*own[:1], TURN_END_OF_GEMMA_3 if family in ("gemma", "gemma2") else TURN_END_OF_GEMMA_2]
    return own[:1]


@contextmanager
def end_tokens_set(model: Any, ids: list[int] | None) -> Iterator[None]:
    """Let other tokens end a generation, or none."""
    with attributes_set([(model.generation_config, "eos_token_id", ids)]):
        yield
