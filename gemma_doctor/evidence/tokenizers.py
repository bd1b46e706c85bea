"""The tokenizer: what it is set to do, and what it makes of texts, batches and conversations."""

from __future__ import annotations

from dataclasses import dataclass

from gemma_doctor.evidence.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class Token:
    """One entry of a vocabulary. `special`: it is no piece of text, but a marker (an added token, or written <so>)."""

    id: int
    text: str
    special: bool = False


@dataclass(frozen=True)
class TokenizerFacts:
    """What the subject's tokenizer is set to do.

    Attributes:
        vocabulary: how many tokens it says it has.
        eos_token_id: of the tokenizer's own end token.
        pad: the token that it pads with, None if it names none.
        own_pad: an entry of its vocabulary that is a pad token by its name, "" if there is none.
        generation_pad: what generate() fills finished rows with, None if nothing says so.
        no_generation_pad: the same as it is written, where it is no whole number; else "".
        rows: of the real embedding, None where nothing says how many.
        truncation_side: "left" or "right".
        longest: model_max_length, None where it stands for no limit.
    """

    padding_side: str
    pad_token_id: int | None
    bos_token_id: int | None
    vocabulary: int
    eos_token_id: int | None = None
    pad: Token | None = None
    own_pad: str = ""
    generation_pad: int | None = None
    no_generation_pad: str = ""
    rows: int | None = None
    truncation_side: str = "right"
    longest: int | None = None


@dataclass(frozen=True)
class BosWay:
    """One way from text to ids: how many BOS stand in front, and the first ids."""

    name: str
    count: int
    begins: tuple[int, ...]


@dataclass(frozen=True)
class BosLosses:
    """Loss of the same tokens of a real text behind no, one and two BOS, in nats, shape (n,) each.

    The first token of the text and BOS itself are left out. `text` says what it is.
    """

    without: Floats
    once: Floats
    twice: Floats
    text: str


@dataclass(frozen=True)
class BosUse:
    """Where BOS is put.

    Attributes:
        token: BOS.
        family: model_type of the text decoder.
        said_by: the setting that asks for one BOS in front of every text, "" if none does.
        plain: tokenizer(text).
        template: apply_chat_template(tokenize=True), None without a chat template.
        both: the text of the chat template through tokenizer(text), None without a chat template.
        no_template: why a chat template that is there could not be looked at.
        losses: on real weights, and only where a way does not put exactly one; else None.
        no_losses: why they could not be measured.
        rows: of the real embedding, None where nothing says how many.
        broken_template: what the chat template raises even for one plain turn of the user, if it does not mean to.
    """

    token: Token
    family: str
    said_by: str
    plain: BosWay
    template: BosWay | None = None
    both: BosWay | None = None
    no_template: str = ""
    losses: BosLosses | None = None
    no_losses: str = ""
    rows: int | None = None
    broken_template: str = ""


@dataclass(frozen=True)
class CutText:
    """A prompt of the run that is longer than what cuts it.

    Attributes:
        name: of the prompt.
        conversation: it goes through the chat template.
        tokens: before it is cut.
        lost: the text that is lost.
        loses_bos: the cut text has no BOS in front, the whole one has.
        loses_turn: the cut conversation ends without the generation prompt, the whole one ends with it.
    """

    name: str
    conversation: bool
    tokens: int
    lost: str
    loses_bos: bool = False
    loses_turn: bool = False


@dataclass(frozen=True)
class Truncation:
    """What truncation=True does to the texts of this run.

    Attributes:
        limit: tokens that are kept, None if nothing cuts.
        limit_by: who says so: "--max-length", "model_max_length of the tokenizer", "".
        side: on which tokens are cut off.
        positions: that the model has, None where it names none.
        window: W, None without one.
        prompts: how many prompts the user gave; `longest` is that of the longest, in tokens (0 without any).
        cut: those that are longer than `limit`.
    """

    limit: int | None
    limit_by: str
    side: str
    positions: int | None
    window: int | None
    prompts: int
    longest: int
    cut: tuple[CutText, ...]


@dataclass(frozen=True)
class RoundTrip:
    """A text that was encoded and decoded.

    Attributes:
        name: "English", "code" ...
        text, back: before and after, both as the tokenizer's own normaliser writes them.
        unknown: how many of its tokens are the unknown token: their text is lost, and the vocabulary says so itself.
    """

    name: str
    text: str
    back: str
    unknown: int


@dataclass(frozen=True)
class Pieces:
    """A text that should be one token, and the pieces that it came out in. `role`: "named", "turn" or ""."""

    token: Token
    pieces: tuple[str, ...]
    role: str = ""


@dataclass(frozen=True)
class ShatterCost:
    """A real text in the tokenizer's pieces and in whole words of its vocabulary.

    Attributes:
        characters: of the text.
        tokens, whole_tokens: how many it is in pieces, and in whole words.
        nats, whole_nats: loss of all of them.
    """

    characters: int
    tokens: int
    whole_tokens: int
    nats: float
    whole_nats: float


@dataclass(frozen=True)
class TokenizerIntegrity:
    """Whether a tokenizer and its vocabulary fit each other, the model and the chat template.

    Attributes:
        trips: texts there and back.
        words: common words that stand whole in the vocabulary, lower-case, with the mark of a word's start.
        whole: how many of them come back as their own id.
        shattered: some that do not.
        cost: on real weights, and only where many do not; else None.
        markers: special tokens whose own text was encoded.
        split: those that came out as something else than their own id.
        family: model_type of the text decoder.
        foreign: markers that the chat template writes and that are not one token here, in words what they are instead.
        rows: of the real embedding, None where nothing says how many.
        beyond: tokens whose id is no row of it.
        used: those of them that come into texts all the same, each with who puts them there ("unk_token").
    """

    trips: tuple[RoundTrip, ...]
    words: int
    whole: int
    shattered: tuple[Pieces, ...]
    markers: int
    split: tuple[Pieces, ...]
    family: str
    foreign: tuple[Pieces, ...]
    rows: int | None
    beyond: tuple[Token, ...]
    cost: ShatterCost | None = None
    used: tuple[tuple[str, Token], ...] = ()


@dataclass(frozen=True)
class PaddedTexts:
    """Texts of unequal length as the tokenizer itself makes a batch of them, each also alone.

    Attributes:
        alone: ids of each text by itself.
        ids: the batch, shape (rows, columns).
        mask: its attention mask, shape (rows, columns); None if the tokenizer returned none.
        pad_token_id: what it pads with.
        returned: names of what came back.
    """

    alone: tuple[tuple[int, ...], ...]
    ids: Ints
    mask: Bools | None
    pad_token_id: int
    returned: tuple[str, ...]


@dataclass(frozen=True)
class StopTokens:
    """What ends a generation.

    Attributes:
        stops: of the generation settings.
        config: ids that the configuration names.
        own: the tokenizer's end token, None if it names none.
        turn_end: the special token that the chat template writes after an assistant's message, None if it writes none.
        no_turn_end: why there is none.
        family: model_type of the text decoder.
        stop_strings: texts that end a generation as well.
        rows: of the real embedding, None where nothing says how many.
        no_ids: the end tokens as they are written, where they are no whole numbers; else "".
        behind: end tokens that tokenizer(text) puts behind every text.
        suppressed: ids that suppress_tokens keeps from coming.
        least, most: new tokens before which no end token ends, and most that there can be, each with who says so.
    """

    stops: tuple[Token, ...]
    config: tuple[int, ...]
    own: Token | None
    turn_end: Token | None
    no_turn_end: str
    family: str
    stop_strings: tuple[str, ...] = ()
    rows: int | None = None
    no_ids: str = ""
    behind: tuple[Token, ...] = ()
    suppressed: tuple[int, ...] = ()
    least: tuple[int, str] = (0, "")
    most: tuple[int, str] | None = None
