"""What a tokenizer makes of batches and of texts that are too long, and what ends a generation."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemma_doctor import compat, prompts
from gemma_doctor.capture.passes import Passes
from gemma_doctor.capture.tokenizer import TALK, embedding_rows, token, tokenizer_of
from gemma_doctor.check import CouldNotLook, NotApplicable
from gemma_doctor.errors import in_one_line
from gemma_doctor.evidence import CutText, PaddedTexts, StopTokens, Token, Truncation, frozen
from gemma_doctor.loading import Patient
from gemma_doctor.prompt import Prompt
from gemma_doctor.settings import Settings

LENGTHS = (240, 30, 120)  # characters of the texts in a batch


def padded_texts(patient: Patient) -> PaddedTexts:
    """Three texts of unequal length in one batch, as the tokenizer itself pads them.

    Raises:
        NotApplicable: there is no tokenizer, or no pad token.
        CouldNotLook: it raises.
    """
    own = tokenizer_of(patient)
    if own.pad_token_id is None:
        raise NotApplicable("its tokenizer has no pad token, so it pads nothing")
    text = prompts.english(sum(LENGTHS))
    texts = [text[:end] for end in LENGTHS]
    try:
        made = own(texts, padding=True, return_tensors="np")
        ids, mask = np.asarray(made["input_ids"]), made.get("attention_mask")
    except Exception as error:  # of whatever kind a tokenizer likes
        raise CouldNotLook(f"the tokenizer pads no batch: {in_one_line(error)}") from error
    return PaddedTexts(
        alone=tuple(tuple(compat.plain_ids(own, one)) for one in texts),
        ids=frozen(ids),
        mask=None if mask is None else frozen(np.asarray(mask).astype(bool)),
        pad_token_id=own.pad_token_id,
        returned=tuple(made.keys()),
    )


# --- truncation ------------------------------------------------------------------------------------------------------


def truncation(patient: Patient, passes: Passes, settings: Settings) -> Truncation:
    """What truncation=True does to the prompts of this run.

    Raises:
        NotApplicable: there is no tokenizer.
    """
    own = tokenizer_of(patient)
    limit, said_by = settings.max_length, "--max-length"
    if limit is None:
        limit, said_by = compat.longest_text(own), "model_max_length of the tokenizer"
    written = [(one, _ids(own, one)) for one in settings.prompts]
    side = str(own.truncation_side)
    return Truncation(
        limit=limit,
        limit_by=said_by if limit is not None else "",
        side=side,
        positions=passes.facts.loaded.max_positions,
        window=patient.window,
        prompts=len(written),
        longest=max((len(ids) for _, ids in written), default=0),
        cut=tuple(_cut(own, one, ids, limit, side) for one, ids in written if limit is not None and len(ids) > limit),
    )


def _ids(tokenizer: Any, prompt: Prompt) -> list[int]:
    if prompt.messages:
        return compat.chat_ids(tokenizer, [one.served() for one in prompt.messages])
    return compat.plain_ids(tokenizer, prompt.text)


def _cut(tokenizer: Any, prompt: Prompt, ids: list[int], limit: int, side: str) -> CutText:
    """A conversation is cut with all that stands in it; of a text the special tokens around it are kept."""
    if prompt.messages:
        kept = ids[:limit] if side == "right" else ids[-limit:]
    else:
        kept = compat.plain_ids(tokenizer, prompt.text, truncation=True, max_length=limit)
    before = 1 if side == "left" and kept[:1] == ids[:1] and ids[0] == tokenizer.bos_token_id else 0
    lost = ids[len(kept) :] if side == "right" else ids[before : before + len(ids) - len(kept)]
    return CutText(
        name=prompt.name,
        conversation=bool(prompt.messages),
        tokens=len(ids),
        lost=compat.text_of(tokenizer, lost),
        loses_bos=ids[0] == tokenizer.bos_token_id and kept[:1] != ids[:1],
        loses_turn=bool(prompt.messages) and side == "right",
    )


# --- what ends a generation ------------------------------------------------------------------------------------------


def stop_tokens(patient: Patient) -> StopTokens:
    """Ids that end a generation by the subject's own settings, and the end of a turn in its chat template.

    Raises:
        NotApplicable: there is no tokenizer, or these are no real weights, whose settings are the subject's own.
    """
    own = tokenizer_of(patient)
    if not patient.encodes:
        raise NotApplicable("a skeleton has no generation settings of its own")
    model = patient.model
    named = compat.text_config(model).eos_token_id
    end, why_not = _turn_end(own)
    return StopTokens(
        stops=tuple(token(own, one) for one in compat.end_tokens(model)),
        config=_ids_of(named if isinstance(named, (list, tuple)) else [named]),
        own=None if own.eos_token_id is None else token(own, own.eos_token_id),
        turn_end=end,
        no_turn_end=why_not,
        family=str(compat.text_config(model).model_type),
        stop_strings=_texts(getattr(model.generation_config, "stop_strings", None)),
        rows=embedding_rows(patient),
        no_ids=compat.no_end_tokens(model),
        behind=tuple(token(own, one) for one in _behind(own) if one in {*compat.end_tokens(model), own.eos_token_id}),
        suppressed=_ids_of(getattr(model.generation_config, "suppress_tokens", None)),
        least=_least(model.generation_config),
        most=_most(model),
    )


def _behind(tokenizer: Any) -> list[int]:
    """Special tokens that a tokenizer puts behind a text."""
    return compat.special_tokens_around(tokenizer)[1]


def _ids_of(value: Any) -> tuple[int, ...]:
    return tuple(one for one in value if compat.is_whole(one)) if isinstance(value, (list, tuple)) else ()


def _least(config: Any) -> tuple[int, str]:
    """min_new_tokens; min_length counts the prompt too, and so keeps no long one from ending."""
    least: Any = getattr(config, "min_new_tokens", None)
    return (least, f"min_new_tokens={least}") if compat.is_whole(least) else (0, "")


def _most(model: Any) -> tuple[int, str] | None:
    """New tokens at most: as the settings say, or as many as there are positions."""
    asked: Any = getattr(model.generation_config, "max_new_tokens", None)
    positions: Any = getattr(compat.text_config(model), "max_position_embeddings", None)
    named = ((asked, f"max_new_tokens={asked}"), (positions, f"{positions} positions"))
    return min((one for one in named if compat.is_whole(one[0])), default=None)


def _texts(value: Any) -> tuple[str, ...]:
    return () if value is None else (value,) if isinstance(value, str) else tuple(map(str, value))


def _turn_end(tokenizer: Any) -> tuple[Token | None, str]:
    """The first special token behind an assistant's message, or why there is none."""
    if not compat.has_chat_template(tokenizer):
        return None, "no chat template"
    try:
        text = compat.chat_text(tokenizer, TALK, answer=False)
    except Exception as error:  # a template may raise whatever it likes
        return None, f"the chat template raises: {in_one_line(error)}"
    _, found, behind = text.rpartition(TALK[-1]["content"])
    if not found:
        return None, "the chat template leaves the assistant's message out"
    ids = compat.plain_ids(tokenizer, behind, add_special_tokens=False) if behind else []
    ends = next((one for one in (token(tokenizer, one) for one in ids) if one.special), None)
    return ends, "" if ends else "the chat template writes no special token after an assistant's message"
