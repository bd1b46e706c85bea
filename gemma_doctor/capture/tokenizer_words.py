"""Whether a tokenizer and its vocabulary fit each other: texts there and back, whole words, special tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from gemma_doctor import compat, prompts
from gemma_doctor.capture import ledger
from gemma_doctor.capture.losses import measured
from gemma_doctor.capture.tokenizer import TALK, embedding_rows, token, tokenizer_of
from gemma_doctor.check import CouldNotLook
from gemma_doctor.evidence import Pieces, RoundTrip, ShatterCost, Token, TokenizerIntegrity
from gemma_doctor.loading import Patient
from gemma_doctor.oracle import WHOLE_WORDS

STARTS = ("▁", "Ġ")  # how vocabularies mark the start of a word
WORD = re.compile(r"[a-z]{3,}")
WORDS = 2000  # of the lowest ids, which are the commonest
BEFORE = "x"
FEW = 20  # a vocabulary with fewer words than these is none of words
SHOWN = 8
SCORED = 600  # characters of the text whose cost is measured: in single letters as many tokens
TEXTS = {
    "code": "def f(x: int) -> dict[str, int]:\n    return {'x': x ** 2, \"y\": x // 3}  # ok?\n",
    "white space": "a  b   c\n\n\td\n    e",
    "numbers": "3.14159, 1,000,000, 2024-01-31, 0x1F, 12345678901234567890 and -7%",
    "scripts": "Grüße, żółć, Привет, Γειά, שלום, مرحبا, नमस्ते, สวัสดี, 你好, こんにちは, 안녕하세요",
    "emoji": "🙂 👩‍💻 🇪🇺",
}
# Markers of turns, by generation of the Gemma family; of both the ids are 105 and 106, or 106 and 107.
TURNS = ("<start_of_turn>", "<end_of_turn>")
TURNS_OF_GEMMA_4 = ("<|turn>", "<turn|>")
MARKERS = re.compile(r"<\|[^<>|\s]+\|>|<\|turn>|<turn\|>|<(?:start|end)_of_turn>")


def integrity(patient: Patient) -> TokenizerIntegrity:
    """Everything that a vocabulary can be asked without a model; on real weights what shattered words cost.

    Raises:
        NotApplicable: there is no tokenizer.
    """
    own = tokenizer_of(patient)
    vocabulary = {str(text): int(one) for text, one in own.get_vocab().items()}
    start = max(STARTS, key=lambda mark: sum(text.startswith(mark) for text in vocabulary))
    words, whole, shattered = _words(own, vocabulary, start)
    family, markers = str(compat.text_config(patient.model).model_type), _markers(own, vocabulary)
    rows = embedding_rows(patient)
    beyond = sorted(one for one in vocabulary.values() if rows is not None and one >= rows)
    cost = None
    if patient.encodes and words and whole < WHOLE_WORDS * words:
        cost = _cost(patient, vocabulary, start)
    return TokenizerIntegrity(
        trips=tuple(_round_trips(own)),
        words=words,
        whole=whole,
        shattered=shattered,
        markers=len(markers),
        split=tuple(_split(own, markers)),
        family=family,
        foreign=tuple(_foreign(own)),
        rows=rows,
        beyond=tuple(token(own, one) for one in beyond[:SHOWN]),
        used=tuple(_used(own, set(beyond))),
        cost=cost,
    )


def _round_trips(tokenizer: Any) -> Iterator[RoundTrip]:
    unknown = tokenizer.unk_token_id
    for name, text in {"English": prompts.english(1)[:400], **TEXTS}.items():
        ids = compat.plain_ids(tokenizer, text, add_special_tokens=False)
        before, after = (compat.normalised(tokenizer, one).strip() for one in (text, compat.text_of(tokenizer, ids)))
        yield RoundTrip(name, before, after, ids.count(unknown) if unknown is not None else 0)


def _words(tokenizer: Any, vocabulary: Mapping[str, int], start: str) -> tuple[int, int, tuple[Pieces, ...]]:
    """Common words of the vocabulary, how many of them come back whole, and some of the others."""
    every = (text for text in vocabulary if text.startswith(start) and WORD.fullmatch(text[1:]))
    words = sorted(every, key=lambda text: vocabulary[text])[:WORDS]
    if len(words) < FEW:
        return 0, 0, ()
    # behind another word: at its beginning a text may get a blank more (Llama 2 in transformers 4)
    before, *found = compat.ids_of_each(tokenizer, [BEFORE, *(f"{BEFORE} {text[1:]}" for text in words)])
    pieces = (ids[len(before) :] for ids in found)
    broken = [(text, ids) for text, ids in zip(words, pieces, strict=True) if ids != [vocabulary[text]]]
    some = (Pieces(Token(vocabulary[text], text), _written(tokenizer, ids)) for text, ids in broken[:SHOWN])
    return len(words), len(words) - len(broken), tuple(some)


def _written(tokenizer: Any, ids: list[int]) -> tuple[str, ...]:
    return tuple(str(one) for one in tokenizer.convert_ids_to_tokens(ids))


def _markers(tokenizer: Any, vocabulary: Mapping[str, int]) -> dict[str, tuple[int, str]]:
    """Ids and roles of the tokens that must come out of their own text as one."""
    turns = {text: vocabulary[text] for text in (*TURNS, *TURNS_OF_GEMMA_4) if text in vocabulary}
    added = {str(text): int(one) for text, one in tokenizer.get_added_vocab().items()}
    roles = (("", added), ("turn", turns), ("named", compat.named_tokens(tokenizer)))
    return {text: (one, role) for role, tokens in roles for text, one in tokens.items()}


def _split(tokenizer: Any, markers: Mapping[str, tuple[int, str]]) -> Iterator[Pieces]:
    found = compat.ids_of_each(tokenizer, list(markers))
    for (text, (one, role)), ids in zip(markers.items(), found, strict=True):
        if ids != [one]:
            yield Pieces(Token(one, text, True), _written(tokenizer, ids), role)


def _foreign(tokenizer: Any) -> Iterator[Pieces]:
    """Markers that the chat template writes around the messages and that come out as several tokens."""
    if not compat.has_chat_template(tokenizer):
        return
    try:
        text = compat.chat_text(tokenizer, TALK, answer=False)
    except Exception:  # bos-token says what it raises
        return
    written = list(dict.fromkeys(MARKERS.findall(text)))
    for marker, ids in zip(written, compat.ids_of_each(tokenizer, written), strict=True):
        if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
            yield Pieces(Token(-1, marker, True), _written(tokenizer, ids), "turn" if "turn" in marker else "")


def _used(tokenizer: Any, beyond: set[int]) -> Iterator[tuple[str, Token]]:
    """Tokens without a row that come into texts: those with a purpose of their own, those that the template writes."""
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        one = getattr(tokenizer, f"{name}_id", None)
        if one in beyond:
            yield name, token(tokenizer, one)
    if beyond and compat.has_chat_template(tokenizer):
        try:
            ids = compat.chat_ids(tokenizer, TALK[:1])
        except Exception:  # bos-token says what it raises
            return
        yield from (("the chat template", token(tokenizer, one)) for one in dict.fromkeys(ids) if one in beyond)


def _cost(patient: Patient, vocabulary: Mapping[str, int], start: str) -> ShatterCost | None:
    """Loss of a real text as the tokenizer cuts it, and in whole words of its vocabulary; behind BOS where it can."""
    own = tokenizer_of(patient)
    text = prompts.english(SCORED)[:SCORED]
    cut = compat.plain_ids(own, text, add_special_tokens=False)
    whole = _in_whole_words(own, text, vocabulary, start)
    bos = [own.bos_token_id] if own.bos_token_id is not None else []
    if max(*cut, *whole) >= compat.embedding_rows(patient.model):
        return None

    def nats(ids: list[int]) -> float:
        return float(measured(patient.model, torch.tensor(bos + ids)).double().sum())

    with ledger.entry("loss of shattered words"):
        try:
            return ShatterCost(len(text), len(cut), len(whole), nats(cut), nats(whole))
        except CouldNotLook:
            return None


def _in_whole_words(tokenizer: Any, text: str, vocabulary: Mapping[str, int], start: str) -> list[int]:
    """Ids of a text, its words looked up in the vocabulary; what is none there is left to the tokenizer."""
    pieces = re.findall(r" ?[A-Za-z]+|\n+| ?[^A-Za-z\n ]+| +", text)
    marked = [start + piece[1:] if piece.startswith(" ") else piece for piece in pieces]
    own = compat.ids_of_each(tokenizer, pieces)
    return [
        one
        for piece, ids in zip(marked, own, strict=True)
        for one in ([vocabulary[piece]] if piece in vocabulary else ids)
    ]
