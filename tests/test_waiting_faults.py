"""Faults whose checks do not exist yet: each changes what it is about, and all is as before when it is out again.

That something differs at all is enough: under some of them a skeleton's logits move by no more than 1e-4.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from gemma_doctor import compat
from gemma_doctor.faults import WAITED_FOR, all_faults
from gemma_doctor.loading import Patient
from gemma_doctor.registry import built_in

PatientOf = Callable[..., Patient]
WAITING = {name: one for name, one in all_faults().items() if one.caught_by in WAITED_FOR}
SKELETONS = (("gemma-3-1b-it", "sdpa"), ("gemma-2-2b", "eager"), ("gemma-4-E2B-it", "sdpa"))
# What must differ while the fault is in, by the group of its check.
SHOWS_IN = {"config": "logits", "positions": "logits", "numerics": "logits", "tokens": "tokens", "generation": "ends"}
PAD, EOS, BOS, UNKNOWN, *WORDS = "<pad>", "<eos>", "<bos>", "<unk>", "one", "two", "three", "four"


class Stop(Exception):
    """Ends the block while a fault is in."""


@cache
def trained(patient_of: PatientOf) -> Patient:
    """Stands for real weights: a tied head, a tokenizer, and an end of turns among the generation settings."""
    healthy = patient_of("gemma-3-1b-it", "sdpa")
    model = copy.deepcopy(healthy.reduced)
    model.get_output_embeddings().weight = model.get_input_embeddings().weight
    model.generation_config.eos_token_id = [1, 106]
    subject = replace(healthy.subject, weights="real")
    return replace(healthy, subject=subject, model=model, reduced=model, tokenizer=tokenizer())


def tokenizer() -> Any:
    """Of words; puts BOS in front."""
    ids = {name: index for index, name in enumerate((PAD, EOS, BOS, UNKNOWN, *WORDS))}
    backend = Tokenizer(models.WordLevel(ids, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, ids[BOS])]
    )
    named = {"pad_token": PAD, "eos_token": EOS, "bos_token": BOS, "unk_token": UNKNOWN}
    return PreTrainedTokenizerFast(tokenizer_object=backend, padding_side="left", **named)


def patients(patient_of: PatientOf) -> list[Patient]:
    """But for those of families that an older release does not know."""
    found = [trained(patient_of)]
    for name, backend in SKELETONS:
        with suppress(pytest.skip.Exception):
            found.append(patient_of(name, backend))
    return found


def seen(patient: Patient) -> dict[str, Any]:
    """What faults show in. Logits as bytes: they must be the same bit by bit."""
    return {
        "logits": [part for model in patient.models for part in logits(model)],
        "tokens": encoded(patient) if patient.tokenizer is not None else None,
        "ends": [compat.end_tokens(model) for model in patient.models],
        "configs": [model.config.to_json_string() for model in patient.models],
        "hooks": [len(one._forward_hooks) + len(one._forward_pre_hooks) for one in patient.model.modules()],
        "tied": patient.model.get_output_embeddings().weight is patient.model.get_input_embeddings().weight,
    }


@torch.inference_mode()
def logits(model: Any) -> Iterator[bytes]:
    """Of a prompt beyond the window and the positions that bfloat16 tells apart, and of the step after it."""
    ids = torch.arange(10, 310)[None]
    cache = compat.cache_argument(compat.dynamic_cache(model))
    for fed in (ids, ids[:, :1]):
        yield model(fed, use_cache=True, **cache).logits.numpy().tobytes()


def encoded(patient: Patient) -> tuple[object, ...]:
    """A text alone, one that is cut, and a batch; and what a tokenizer would write into its files."""
    own = patient.tokenizer
    assert own is not None
    return (
        own("one two").input_ids,
        own("one two three four", truncation=True, max_length=3).input_ids,
        own(["one two", "three"], padding=True).input_ids,
        patient.pad_token_id,
        dict(own.special_tokens_map),
        own.backend_tokenizer.to_str(),
    )


@pytest.mark.parametrize("name", WAITING)
def test_it_changes_something_and_is_undone(patient_of: PatientOf, name: str) -> None:
    fault, there = WAITING[name], patients(patient_of)
    sick = [patient for patient in there if not fault.why_not(patient)]
    if not sick and len(there) <= len(SKELETONS):
        pytest.skip("this release does not know the family that can have it")
    assert sick, f"{name} is applicable to none of the patients here"
    for patient in sick:
        own, before = patient.tokenizer, seen(patient)
        with suppress(Stop), fault.inject(patient):
            within = seen(patient)
            raise Stop
        shown = SHOWS_IN[fault.group]
        assert within[shown] != before[shown]
        assert seen(patient) == before
        assert patient.tokenizer is own


@pytest.mark.parametrize(
    ("name", "text", "cut", "batch"),
    [
        ("", [2, 4, 5], [2, 4, 5], [[2, 4, 5], [0, 2, 6]]),
        ("bos-missing", [4, 5], [4, 5, 6], [[4, 5], [0, 6]]),
        ("bos-doubled", [2, 2, 4, 5], [2, 2, 4], [[2, 2, 4, 5], [0, 2, 2, 6]]),
        ("pad-id-wrong", [2, 4, 5], [2, 4, 5], [[2, 4, 5], [1, 2, 6]]),
        ("truncated-at-the-wrong-side", [2, 4, 5], [2, 6, 7], [[2, 4, 5], [0, 2, 6]]),
    ],
)
def test_what_a_tokenizer_makes_of_text(
    patient_of: PatientOf, name: str, text: list[int], cut: list[int], batch: list[list[int]]
) -> None:
    patient = trained(patient_of)
    if not name:
        assert encoded(patient)[:3] == (text, cut, batch)
        return
    with all_faults()[name].inject(patient):
        assert encoded(patient)[:3] == (text, cut, batch)


def test_the_turns_of_another_generation_end_otherwise(patient_of: PatientOf) -> None:
    patient = trained(patient_of)
    with all_faults()["eos-of-another-generation"].inject(patient):
        assert compat.end_tokens(patient.model) == [1, 107]
    assert compat.end_tokens(patient.model) == [1, 106]


def test_a_bare_config_has_no_fault_of_its_tokens(patient_of: PatientOf) -> None:
    patient = patient_of("gemma-3-1b-it", "sdpa")
    of_tokens = [one for one in WAITING.values() if one.group in ("tokens", "generation")]
    assert of_tokens
    assert {one.why_not(patient) for one in of_tokens} == {"a bare config has no tokenizer"}


def test_what_is_waited_for_does_not_exist_and_all_else_does() -> None:
    existing = {one.id for one in built_in()}
    assert {one.caught_by for one in all_faults().values()} - existing == WAITED_FOR.keys()
