"""Prompts as token ids: the user's own, and text of any exact length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gemma_doctor import compat, prompts
from gemma_doctor.errors import DoctorError, one_line
from gemma_doctor.loading import Patient
from gemma_doctor.prompt import Prompt
from gemma_doctor.published import special_ids

# Enough text for any token count: no tokenizer seen here needs more than 6 characters a token on English.
CHARACTERS_A_TOKEN = 6
FEWEST = 4096  # ids of filler that are made at once


@dataclass(frozen=True)
class Given:
    """One of the user's prompts as ids.

    Attributes:
        name: as in `Prompt`.
        ids: shape (n,).
        source: where the ids come from, in words.
        conversation: it is one, written by the chat template.
    """

    name: str
    ids: torch.Tensor
    source: str
    conversation: bool


class Tokens:
    """Supplies prompts for one patient.

    Attributes:
        given: the user's prompts, in order.
        user: ids of the first of them, shape (n,), None if there is none.
        user_source: where those come from, in words.
        source: where the rest comes from, in words.

    Raises:
        DoctorError: a prompt is empty, longer than the model's positions, or cannot be tokenised; or a conversation
            cannot be written by the subject's chat template.
    """

    def __init__(self, patient: Patient, given: Sequence[Prompt], seed: int) -> None:
        self._patient, self._tokenizer = patient, patient.tokenizer if patient.encodes else None
        self._config = compat.text_config(patient.model)
        self._seed = seed
        self._filler = torch.empty(0, dtype=torch.long)
        self.source = prompts.source() if self._tokenizer else f"random ids (seed {seed})"
        self.given = tuple(self._given(index, one) for index, one in enumerate(given))
        self.user = self.given[0].ids if self.given else None

    @property
    def user_source(self) -> str:
        """Where the ids of the first prompt come from, in words."""
        return self.given[0].source if self.given else self.source

    def source_of(self, length: int) -> str:
        """Where the ids of `exact(length)` come from, in words."""
        if self.user is None or len(self.user) >= length:
            return self.user_source
        return f"{self.user_source} ({len(self.user)} tokens), filled with {self.source}"

    def _given(self, index: int, prompt: Prompt) -> Given:
        if not (prompt.messages or prompt.text.strip()):
            raise DoctorError(f"the {prompt.name} is empty", "give text with --prompt or --prompt-file")
        ids, source = self._written(prompt), f"the {prompt.name}"
        if self._tokenizer is None:
            # of a vocabulary that is not there, or not the model's, only the length can be kept
            length, each = (prompt.words, "a word") if ids is None else (len(ids), "a token")
            ids = self._random(length, self._seed + 1 + index)
            why = "no tokenizer" if self._patient.tokenizer is None else "the vocabulary is cut"
            source = f"random ids, one {each} of {source} ({why}, seed {self._seed})"
        assert ids is not None
        limit = getattr(self._config, "max_position_embeddings", None)
        if limit is not None and len(ids) > limit:
            raise DoctorError(
                f"the {prompt.name} has {len(ids):,} tokens, the model has {limit:,} positions", "give a shorter prompt"
            )
        return Given(prompt.name, ids, source, bool(prompt.messages))

    def _written(self, prompt: Prompt) -> torch.Tensor | None:
        """Ids that the subject's own tokenizer makes of a prompt, shape (n,); None if there is no tokenizer.

        A skeleton has no embedding for them.
        """
        if prompt.messages:
            return self._conversation(prompt)
        return None if self._patient.tokenizer is None else self._encode(prompt.text, f"the {prompt.name}")

    def _conversation(self, prompt: Prompt) -> torch.Tensor | None:
        tokenizer, subject = self._patient.tokenizer, self._patient.subject
        if tokenizer is None and subject.weights == "skeleton":
            return None
        plain = "give the text as it is with --prompt"
        if tokenizer is None:
            raise DoctorError(f"the {prompt.name}: {subject.name} has no tokenizer, so no chat template", plain)
        if not compat.has_chat_template(tokenizer):
            raise DoctorError(
                f"the {prompt.name}: the tokenizer of {subject.name} has no chat template",
                f"set tokenizer.chat_template as it is deployed and save it beside the weights, or {plain}",
            )
        messages = [one.served() for one in prompt.messages]
        with one_line(f"the {prompt.name}: the chat template refuses it", "change the messages as the template says"):
            text = compat.chat_text(tokenizer, messages)
            ids = compat.chat_ids(tokenizer, messages)
        if any(isinstance(one["content"], list) and str(one["content"]) in text for one in messages):
            raise DoctorError(
                f"the {prompt.name}: the chat template writes the parts of a message as Python would print them",
                "give each content as one text",
            )
        if not ids:
            raise DoctorError(f"the {prompt.name}: the chat template writes nothing", "correct the chat template")
        return torch.tensor(ids, dtype=torch.long)

    def _encode(self, text: str, what: str) -> torch.Tensor:
        assert self._patient.tokenizer is not None
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DoctorError(f"{what} is no valid text (it is not UTF-8)", "give it as UTF-8") from None
        with one_line(f"{what} cannot be tokenised", "look at the tokenizer: --select tokens, without a prompt"):
            ids = self._patient.tokenizer(text)["input_ids"]
        if not ids:
            raise DoctorError(f"{what}: the tokenizer makes no tokens of it", "give another text, or another tokenizer")
        return torch.tensor(ids, dtype=torch.long)

    def exact(self, length: int, offset: int = 0) -> torch.Tensor:
        """Exactly `length` ids, shape (length,): the user's prompt first if there is one, then filler.

        Args:
            length: how many.
            offset: where in the filler to begin, so that the rows of a batch differ; such rows are all filler.
        """
        head = self._filling(1)[:1] if self.user is None or offset else self.user[:length]
        return torch.cat([head, self._filling(1 + offset + length)[1 + offset :]])[:length]

    def _filling(self, length: int) -> torch.Tensor:
        """At least `length` ids of filler; the first is BOS where the tokenizer adds one."""
        if len(self._filler) < length:
            if self._tokenizer is None:
                self._filler = self._random(max(FEWEST, 2 * length), self._seed)
            else:
                self._filler = self._docstrings(length)
        return self._filler

    def _docstrings(self, length: int) -> torch.Tensor:
        """At least `length` ids of real text, none of it twice; more if there are, so that few have to be made again.

        Raises:
            DoctorError: there is less of it.
        """
        text, characters = "", CHARACTERS_A_TOKEN * max(FEWEST, length, 2 * len(self._filler))
        while len(longer := prompts.english(characters)) > len(text):
            text = longer
            ids = self._encode(text, prompts.SOURCE)
            if len(ids) >= length:
                return ids
            characters *= 4  # a tokenizer of long words
        raise DoctorError(
            f"{length:,} tokens of text are asked for, and the {self.source} are fewer",
            "ask for less with --length, or give a text of your own with --prompt-file",
        )

    def _random(self, length: int, seed: int) -> torch.Tensor:
        special = special_ids(self._config.to_dict())
        ordinary = torch.tensor([i for i in range(self._config.vocab_size) if i not in special])
        if not len(ordinary):
            raise DoctorError(
                f"the vocabulary of {self._config.vocab_size} holds special tokens only", "correct vocab_size"
            )
        picks = torch.randint(len(ordinary), (length,), generator=torch.Generator().manual_seed(seed))
        return ordinary[picks]


def padded(rows: Sequence[torch.Tensor], side: str, pad_token_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of shape (n,) each as one batch: ids and attention mask, shape (rows, columns) each."""
    columns = max(len(row) for row in rows)
    ids = rows[0].new_full((len(rows), columns), pad_token_id)
    mask = torch.zeros_like(ids)
    for index, row in enumerate(rows):
        where = slice(columns - len(row), None) if side == "left" else slice(0, len(row))
        ids[index, where] = row
        mask[index, where] = 1
    return ids, mask
