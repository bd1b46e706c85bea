"""The tokenizer, its vocabulary, the model and the chat template are made for each other.

What it proves
    Texts come back as they were (after the tokenizer's own normaliser). Common words that stand whole in the vocabulary
    come out as that one token. The text of every special token comes out as that token. Markers that the chat template
    writes around turns are single tokens here. No id lies beyond the embedding.

Why it matters
    Models were trained on whole words and whole markers. A vocabulary without its merges still gives ids, and text that
    decodes well, but of letters: each of them is a surprise to the model. Gemma 3 270M as transformers 5.12 reads it
    from its GGUF file is such a patient.

How to fix
    Shattered words: load the tokenizer of the original repository, or another release of transformers. Markers of
    another generation: take the chat template that was published with this vocabulary.

Known limits
    Of words, the first 2,000 of at least three small letters are looked up; vocabularies that mark no word's start are
    left out. Healthy ones gave 99.99 % and more (Gemma 3, Llama 2, Llama 3.1, Qwen 3, gpt-oss, DeepSeek 3), sick ones
    none (5.12) and 4 % (4.57.6): below 90 % is shattered (`whole_words`, a share). Special tokens without a row are a
    note as long as neither the chat template nor a purpose (BOS, end, pad, unknown) brings them into texts: Gemma 3's
    image token has none in its text-only models. Markers that are plain text by design are a note outside of Gemma.

References
    The packaged Gemma 3 270M in transformers 4.57.6, 5.12 and 5.16; turns are <start_of_turn> in Gemma 1 to 3n, <|turn>
    in Gemma 4, with the same ids from Gemma 3 on.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.check import check
from gemma_doctor.evidence import Pieces, RoundTrip, TokenizerIntegrity
from gemma_doctor.finding import Examined, Finding, Severity, counted
from gemma_doctor.oracle import WHOLE_WORDS

AROUND = 30  # characters shown of a text that came back changed
ORIGINAL = "load the tokenizer of the original repository, or with another release of transformers"


@check()
def tokenizer_integrity(seen: TokenizerIntegrity, *, whole_words: float = WHOLE_WORDS) -> Iterator[Finding | Examined]:
    """Words, special tokens and turn markers are the tokens that the vocabulary has for them."""
    for trip in seen.trips:
        if not trip.unknown and trip.text != trip.back:
            yield _changed(trip)
    if seen.words and seen.whole < whole_words * seen.words:
        yield _shattered(seen)
    if seen.split:
        yield _split(seen)
    if seen.foreign:
        yield _foreign(seen)
    if seen.beyond:
        yield _beyond(seen)
    words = f"{seen.whole:,} of {seen.words:,} words whole, " if seen.words else ""
    markers = f"{seen.markers - len(seen.split):,} of {seen.markers:,} special tokens"
    yield Examined(
        len(seen.trips) + seen.words + seen.markers, f"{words}{markers}, {len(seen.trips)} texts there and back"
    )


def _finding(title: str, severity: Severity, observed: str, expected: str, do: str, effect: str = "") -> Finding:
    return Finding(
        title=title, severity=severity, observed=observed, expected=expected, do=do, effect=effect, standing=True
    )


def _changed(trip: RoundTrip) -> Finding:
    pairs = zip(trip.text, trip.back, strict=False)
    first = next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(trip.text), len(trip.back)))
    around = slice(max(first - AROUND // 2, 0), first + AROUND)
    blanks = "".join(trip.text.split()) == "".join(trip.back.split())
    severity = Severity.NOTE if blanks else Severity.ERROR if trip.name == "English" else Severity.WARNING
    what = "loses white space" if blanks else "does not come back as it was"
    return _finding(f"text ({trip.name}) {what}", severity, repr(trip.back[around]), repr(trip.text[around]), ORIGINAL)


def _shattered(seen: TokenizerIntegrity) -> Finding:
    examples = "; ".join(f"{one.token.text!r} as {_pieces(one)}" for one in seen.shattered[:2])
    effect, cost = "", seen.cost
    if cost is not None:
        as_words = f"{cost.whole_nats / cost.characters:.2f} in whole words of its own vocabulary"
        effect = f"{cost.nats / cost.characters:.2f} nats per character against {as_words}; "
        effect += f"{cost.tokens / cost.whole_tokens:.1f} x as many tokens ({cost.characters} characters of docstrings)"
    return _finding(
        "words that the vocabulary has come out in pieces",
        Severity.ERROR,
        f"{seen.whole:,} of {seen.words:,} common words come out whole: {examples}",
        "nearly all of them: the model was trained on whole words",
        ORIGINAL,
        effect,
    )


def _split(seen: TokenizerIntegrity) -> Finding:
    important = [one for one in seen.split if one.role] or list(seen.split)
    worst = Severity.ERROR if important[0].role else Severity.WARNING
    shown = "; ".join(f"{one.token.text[:40]!r} (id {one.token.id}) as {_pieces(one)}" for one in important[:2])
    return _finding(
        "special tokens are read as text",
        worst,
        f"{counted(len(seen.split), 'special token')} come out in pieces: {shown}",
        "each one as its own id",
        ORIGINAL,
    )


def _foreign(seen: TokenizerIntegrity) -> Finding:
    shown = "; ".join(f"{one.token.text[:40]!r} as {_pieces(one)}" for one in seen.foreign[:2])
    gemma = seen.family.startswith("gemma") and any(one.role for one in seen.foreign)
    return _finding(
        "the chat template writes turn markers that are no tokens here",
        Severity.ERROR if gemma else Severity.NOTE,
        shown,
        "single tokens: turns of another generation of the family are plain text to this model"
        if gemma
        else "single tokens, unless the model was trained on them as text",
        "take the chat template that was published with this vocabulary",
    )


def _beyond(seen: TokenizerIntegrity) -> Finding:
    words = [one for one in seen.beyond if not one.special]
    if seen.used and not words:
        return _used(seen)
    shown = ", ".join(f"{one.text[:40]!r} (id {one.id})" for one in (words or seen.beyond)[:3])
    return _finding(
        "the vocabulary has ids that the embedding has no row for",
        Severity.ERROR if words else Severity.NOTE,
        f"{shown}; the embedding has {seen.rows or 0:,} rows",
        "a row for every token" if words else "a row for every token that a text may hold",
        "model.resize_token_embeddings(len(tokenizer)) before training, or take the tokenizer of this model",
    )


def _used(seen: TokenizerIntegrity) -> Finding:
    shown = ", ".join(f"{who} {one.text[:40]!r} (id {one.id})" for who, one in seen.used[:3])
    return _finding(
        "special tokens that are in use have no row in the embedding",
        Severity.ERROR,
        f"{shown}; the embedding has {seen.rows or 0:,} rows",
        "a row for every token that comes into a text: a model raises on an id without one",
        "model.resize_token_embeddings(len(tokenizer)) and training, or take the tokenizer of this model",
    )


def _pieces(one: Pieces) -> str:
    more = " ..." if len(one.pieces) > 4 else ""
    return ", ".join(repr(piece[:20]) for piece in one.pieces[:4]) + more
