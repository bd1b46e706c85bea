"""Changes a tokenizer: a copy of it stands in, so that the patient's own is never touched."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gemma_doctor import compat
from gemma_doctor.loading import Patient
from gemma_doctor.undone import attributes_set


def no_tokenizer(patient: Patient) -> str:
    """Reason why a patient cannot have a fault of its tokenizer."""
    return "" if patient.tokenizer is not None else "a bare config has no tokenizer"


def no_pads(patient: Patient) -> str:
    """Reason why a patient cannot have a fault of its padded batches."""
    if patient.tokenizer is None:
        return no_tokenizer(patient)
    return "" if patient.tokenizer.pad_token_id is not None else "its tokenizer has no pad token"


def no_bos(patient: Patient) -> str:
    """Reason why a patient cannot have a fault of its BOS."""
    if patient.tokenizer is None:
        return no_tokenizer(patient)
    if not compat.takes_special_tokens(patient.tokenizer):
        return "its tokenizer is written in Python and has no template of special tokens"
    before, _ = compat.special_tokens_around(patient.tokenizer)
    return "" if patient.tokenizer.bos_token_id in before else "its tokenizer adds no BOS"


@contextmanager
def tokenizer_changed(patient: Patient, change: Callable[[Any], None]) -> Iterator[None]:
    """Let a patient have another tokenizer.

    Args:
        patient: who has one.
        change: changes a copy of it in place.
    """
    other = copy.deepcopy(patient.tokenizer)
    change(other)
    with attributes_set([(patient, "tokenizer", other)]):
        yield


@contextmanager
def bos_written(patient: Patient, times: int) -> Iterator[None]:
    """Let a tokenizer put BOS in front of every text as often as that; other special tokens stay."""

    def change(tokenizer: Any) -> None:
        before, after = compat.special_tokens_around(tokenizer)
        others = [one for one in before if one != tokenizer.bos_token_id]
        compat.put_special_tokens_around(tokenizer, [tokenizer.bos_token_id] * times + others, after)

    with tokenizer_changed(patient, change):
        yield
