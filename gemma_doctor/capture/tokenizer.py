"""What a tokenizer is set to do, where it puts BOS, and what that costs."""

from __future__ import annotations

from typing import Any

import torch

from gemma_doctor import compat, prompts
from gemma_doctor.capture import ledger
from gemma_doctor.capture.losses import measured
from gemma_doctor.check import CouldNotLook, NotApplicable
from gemma_doctor.errors import in_one_line
from gemma_doctor.evidence import BosLosses, BosUse, BosWay, Floats, Token, TokenizerFacts, frozen
from gemma_doctor.loading import Patient
from gemma_doctor.subject import IN_MEMORY

NONE, NOT_GIVEN = "a bare config has no tokenizer", "no tokenizer was given"
NO_TOKEN = "(no token of the vocabulary)"
TALK = ({"role": "user", "content": "first words"}, {"role": "assistant", "content": "last words"})
CUT = 160  # characters of what a chat template raises
BEGINNING = 4  # ids shown of a way from text to ids
SCORED = 256  # tokens of the text that losses are measured on
CHARACTERS = 8 * SCORED  # enough for them in any vocabulary that is whole
# Entries that are pad tokens by their name, in the vocabularies of families seen.
PADS = ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|pad_token|>", "<|finetune_right_pad_id|>", "<PAD>")


def tokenizer_of(patient: Patient) -> Any:
    """The patient's tokenizer.

    Raises:
        NotApplicable: it has none.
    """
    if patient.tokenizer is None:
        raise NotApplicable(NOT_GIVEN if patient.subject.kind == IN_MEMORY else NONE)
    return patient.tokenizer


def tokenizer_facts(patient: Patient) -> TokenizerFacts:
    """Its settings."""
    own = tokenizer_of(patient)
    generation = getattr(patient.model.generation_config, "pad_token_id", None) if patient.encodes else None
    return TokenizerFacts(
        padding_side=str(own.padding_side),
        pad_token_id=own.pad_token_id,
        bos_token_id=own.bos_token_id,
        vocabulary=len(own),
        eos_token_id=own.eos_token_id,
        pad=None if own.pad_token_id is None else token(own, own.pad_token_id),
        own_pad=next((name for name in PADS if _has(own, name)), ""),
        generation_pad=generation if compat.is_whole(generation) else None,
        no_generation_pad="" if generation is None or compat.is_whole(generation) else repr(generation)[:40],
        rows=embedding_rows(patient),
        truncation_side=str(own.truncation_side),
        longest=compat.longest_text(own),
    )


def token(tokenizer: Any, one: int) -> Token:
    """An entry of a vocabulary, as it is written there; where there is none, that is said instead."""
    try:
        text = tokenizer.convert_ids_to_tokens(int(one))
    except (OverflowError, IndexError):  # of negative ids, and of very large ones
        text = None
    if text is None:
        return Token(int(one), NO_TOKEN, True)
    return Token(int(one), str(text), compat.is_marker(tokenizer, str(text)))


def _has(tokenizer: Any, name: str) -> bool:
    there = tokenizer.convert_tokens_to_ids(name)
    return there is not None and there != tokenizer.unk_token_id


def embedding_rows(patient: Patient) -> int | None:
    """Of the real embedding; a skeleton's is cut, so that of the published configuration, None where it names none."""
    if patient.subject.weights == "real":
        return compat.embedding_rows(patient.model)
    published = patient.subject.config.published.raw.get("vocab_size")
    return published if isinstance(published, int) else None


# --- BOS -------------------------------------------------------------------------------------------------------------


def bos_use(patient: Patient) -> BosUse:
    """Where BOS is put; what none and two of them cost, if some way does not put exactly one and the weights are real.

    Raises:
        NotApplicable: there is no tokenizer, or no BOS.
    """
    own = tokenizer_of(patient)
    family = str(compat.text_config(patient.model).model_type)
    named = own.bos_token_id
    if named is None and family.startswith("gemma"):
        named = compat.text_config(patient.model).bos_token_id if patient.encodes else None
    if named is None:
        raise NotApplicable("its tokenizer names no BOS")
    bos = token(own, named)
    plain = _way("tokenizer(text)", compat.plain_ids(own, compat.ANY_TEXT), bos.id)
    template, both, why_not = _through_template(own, bos.id)
    broken = _broken(own) if why_not else ""
    measured, no_losses = None, ""
    if patient.encodes and any(way is not None and way.count != 1 for way in (plain, template)):
        measured, no_losses = _losses(patient, bos.id)
    said_by = compat.asks_for_bos(own) if plain.count != 1 else "its tokenizer"
    return BosUse(
        bos, family, said_by, plain, template, both, why_not, measured, no_losses, embedding_rows(patient), broken
    )


def _way(name: str, ids: list[int], bos: int) -> BosWay:
    count = next((place for place, one in enumerate(ids) if one != bos), len(ids))
    return BosWay(name, count, tuple(ids[:BEGINNING]))


def _through_template(tokenizer: Any, bos: int) -> tuple[BosWay | None, BosWay | None, str]:
    """A conversation as ids, its text through the tokenizer, and why there are none."""
    if not compat.has_chat_template(tokenizer):
        return None, None, ""
    try:
        text, ids = compat.chat_text(tokenizer, TALK[:1]), compat.chat_ids(tokenizer, TALK[:1])
    except Exception as error:  # a template may raise whatever it likes
        return None, None, f"the chat template raises: {in_one_line(error)}"
    direct = _way("apply_chat_template(tokenize=True)", ids, bos)
    again = _way("tokenizer(apply_chat_template(tokenize=False))", compat.plain_ids(tokenizer, text), bos)
    return direct, again, ""


def _broken(tokenizer: Any) -> str:
    """What a chat template raises by mistake for one plain turn of the user, whether its content is text or parts."""
    said = ""
    for content in (TALK[0]["content"], [{"type": "text", "text": TALK[0]["content"]}]):
        try:
            compat.chat_text(tokenizer, [{"role": "user", "content": content}])
            return ""
        except Exception as error:  # a template may raise whatever it likes
            if compat.is_refusal(error):
                return ""
            said = said or f"{type(error).__name__}: {in_one_line(error)}"[:CUT]
    return said


def _losses(patient: Patient, bos: int) -> tuple[BosLosses | None, str]:
    """Three forwards over the same text, in the subject's dtype, or why there are none."""
    own, model = patient.tokenizer, patient.model
    text = prompts.english(CHARACTERS)
    ids = compat.plain_ids(own, text, add_special_tokens=False)[:SCORED]
    if not 0 <= bos < compat.embedding_rows(model):
        return None, f"what that costs cannot be measured: BOS (id {bos}) has no row in the embedding"
    if max(ids) >= compat.embedding_rows(model):
        return None, "the text has ids beyond the embedding"

    def behind(times: int) -> Floats:
        fed = torch.tensor([bos] * times + ids)
        return frozen(measured(model, fed).double().numpy()[times:])

    with ledger.entry("loss with and without BOS"):
        try:
            without, once, twice = (behind(times) for times in range(3))
        except CouldNotLook as error:
            return None, str(error)
    return BosLosses(without, once, twice, f"{len(ids) - 1} tokens of {prompts.source()}"), ""
