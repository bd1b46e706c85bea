"""Prompts as token ids: the user's own, and text of any exact length."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gemma_doctor import compat, prompts
from gemma_doctor.errors import DoctorError
from gemma_doctor.loading import Patient
from gemma_doctor.published import special_ids

# Enough text for any token count: no tokenizer seen here needs more than 6 characters a token on English.
CHARACTERS_A_TOKEN = 6


class Tokens:
    """Supplies prompts for one patient.

    Attributes:
        user: ids that stand for the user's prompt, shape (n,), None if there is none.
        user_source: where they come from, in words.
        source: where the rest comes from, in words.

    Raises:
        DoctorError: the prompt is empty, longer than the model's positions, or cannot be tokenised.
    """

    def __init__(self, patient: Patient, prompt: str | None, seed: int) -> None:
        self._tokenizer = patient.tokenizer
        self._config = compat.text_config(patient.model)
        self._seed = seed
        self._filler = torch.empty(0, dtype=torch.long)
        self.source = prompts.SOURCE if self._tokenizer else f"random ids (seed {seed})"
        self.user: torch.Tensor | None = None
        self.user_source = self.source
        if prompt is not None:
            self.user, self.user_source = self._user_ids(prompt)

    def _user_ids(self, prompt: str) -> tuple[torch.Tensor, str]:
        if not prompt.strip():
            raise DoctorError("the prompt is empty", "give text with --prompt or --prompt-file, or leave both out")
        if self._tokenizer is None:
            # without a vocabulary only the prompt's length can be kept, and that roughly
            words = self._random(len(prompt.split()), self._seed + 1)
            return words, f"random ids, one a word of the given prompt (no tokenizer, seed {self._seed})"
        ids = self._encode(prompt)
        limit = self._config.max_position_embeddings
        if len(ids) > limit:
            raise DoctorError(
                f"the prompt has {len(ids):,} tokens, the model has {limit:,} positions", "give a shorter prompt"
            )
        return ids, "the given prompt"

    def _encode(self, text: str) -> torch.Tensor:
        assert self._tokenizer is not None
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DoctorError("the prompt is no valid text (it is not UTF-8)", "give it as UTF-8") from None
        return torch.tensor(self._tokenizer(text)["input_ids"], dtype=torch.long)

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
                self._filler = self._random(max(4096, 2 * length), self._seed)
            else:
                text = self._encode(prompts.english(CHARACTERS_A_TOKEN * length))
                self._filler = text.repeat(-(-length // len(text)))
        return self._filler

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
