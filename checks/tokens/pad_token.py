"""What batches are padded with is a token of its own.

What it proves
    The tokenizer names a pad token; it is no word, it is a row of the embedding, and where the vocabulary has a token
    made for padding it is that one. The id that generate() fills finished rows with is compared with it.

Why it matters
    generate() guesses a missing attention mask from the pads, but not where pad and end token are one: then pads are
    read like text, silently. Training on batches padded with the end token masks the ends themselves, and the model
    never learns to stop. An id beyond the embedding crashes, on a GPU without saying where.

How to fix
    tokenizer.pad_token = the token that the vocabulary has for it ("<pad>" in Gemma), and the same id in
    generation_config.pad_token_id. Always pass the attention mask.

Known limits
    Pad = end token is common and harmless in families that have no other, as long as the mask is passed: no finding.
    Two different pad ids of tokenizer and generate() are a note: each is skipped when text is decoded, and only a
    mask that is not passed could be guessed wrongly. What a token is for is told by its name.

References
    TransformerLens issue 1005 (pads read as text: no mask, pad = end token); the first step is off by 2.4 in 5.24.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gemma_doctor.check import check
from gemma_doctor.evidence import Token, TokenizerFacts
from gemma_doctor.finding import Examined, Finding, Severity

WORD = re.compile(r"[▁Ġ ]?\w+", re.UNICODE)


@check()
def pad_token(tokenizer: TokenizerFacts) -> Iterator[Finding | Examined]:
    """Batches are padded with a token that is made for it."""
    pad = tokenizer.pad
    unusable = _unusable(tokenizer)
    if unusable and (pad is None or pad.id != tokenizer.generation_pad):  # of that one the tokenizer's pad is told
        yield _raises(tokenizer, unusable)
    if pad is None:
        yield _none(tokenizer)
        yield Examined(1, "no pad token")
        return
    if tokenizer.rows is not None and not 0 <= pad.id < tokenizer.rows:
        yield _fault(
            "the pad token has no row in the embedding",
            Severity.ERROR,
            observed=f"{_named(pad)}; the embedding has {tokenizer.rows:,} rows",
            expected="an id that the embedding has",
            do=_do(tokenizer, "resize the embedding, or name a pad token that it has"),
        )
    elif WORD.fullmatch(pad.text) and not pad.special and tokenizer.own_pad != pad.text:
        yield _fault(
            "batches are padded with an ordinary word",
            Severity.WARNING,
            observed=_named(pad),
            expected="a token that no text holds: real ones are taken for pads where masks are made from ids",
            do=_do(tokenizer, "name a special token as pad_token"),
        )
    elif pad.id == tokenizer.eos_token_id and tokenizer.own_pad not in ("", pad.text):
        yield _fault(
            "batches are padded with the end token, though the vocabulary has a pad token",
            Severity.WARNING,
            observed=f"{_named(pad)} is both",
            expected=f"{tokenizer.own_pad!r}: without an attention mask generate() takes end tokens for text, and "
            "training on such batches masks the ends",
            do=_do(tokenizer, ""),
        )
    if not unusable and tokenizer.generation_pad not in (None, pad.id):
        yield _fault(
            "the tokenizer and generate() pad with different tokens",
            Severity.NOTE,
            observed=f"tokenizer {_named(pad)}, generation settings id {tokenizer.generation_pad}",
            expected="one id: a mask that is not passed is guessed from generate()'s own",
            do=f"generation_config.pad_token_id = {pad.id}, and pass the attention mask",
        )
    also = ", the end token as well" if pad.id == tokenizer.eos_token_id else ""
    yield Examined(1, f"{_named(pad)}{also}")


def _unusable(tokenizer: TokenizerFacts) -> str:
    """What generate() pads with as it is written, if the embedding has no row for it; else ""."""
    one, rows = tokenizer.generation_pad, tokenizer.rows
    beyond = one is not None and (one < 0 or (rows is not None and one >= rows))
    return tokenizer.no_generation_pad or (str(one) if beyond else "")


def _raises(tokenizer: TokenizerFacts, written: str) -> Finding:
    rows = "" if tokenizer.rows is None else f"; the embedding has {tokenizer.rows:,} rows"
    return _fault(
        "generate() pads with an id that has no row in the embedding",
        Severity.ERROR,
        observed=f"generation_config.pad_token_id is {written}{rows}",
        expected="an id that the embedding has: a batch raises as soon as one of its rows ends before the others",
        do=f"generation_config.pad_token_id = {tokenizer.pad_token_id if tokenizer.pad else 'that of a pad token'}",
    )


def _none(tokenizer: TokenizerFacts) -> Finding:
    return _fault(
        "the tokenizer has no pad token",
        Severity.NOTE,
        observed=f"pad_token is None{_beside(tokenizer)}",
        expected="one: tokenizer(texts, padding=True) raises without",
        do=_do(tokenizer, "tokenizer.pad_token = tokenizer.eos_token, and always pass the attention mask"),
    )


def _beside(tokenizer: TokenizerFacts) -> str:
    return f", the vocabulary has {tokenizer.own_pad!r}" if tokenizer.own_pad else ""


def _named(token: Token) -> str:
    return f"{token.text[:40]!r} (id {token.id})"


def _do(tokenizer: TokenizerFacts, otherwise: str) -> str:
    return f"tokenizer.pad_token = {tokenizer.own_pad!r}" if tokenizer.own_pad else otherwise


def _fault(title: str, severity: Severity, *, observed: str, expected: str, do: str) -> Finding:
    return Finding(title=title, severity=severity, observed=observed, expected=expected, do=do, standing=True)
