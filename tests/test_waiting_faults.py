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

from gemma_doctor import compat
from gemma_doctor.faults import WAITED_FOR, all_faults
from gemma_doctor.loading import Patient
from gemma_doctor.registry import built_in

PatientOf = Callable[..., Patient]
WAITING = {name: one for name, one in all_faults().items() if one.caught_by in WAITED_FOR}
SKELETONS = (("gemma-3-1b-it", "sdpa"), ("gemma-2-2b", "eager"), ("gemma-4-E2B-it", "sdpa"))
# What must differ while the fault is in, by the group of its check.
SHOWS_IN = {"config": "logits", "positions": "logits", "numerics": "logits"}


class Stop(Exception):
    """Ends the block while a fault is in."""


@cache
def trained(patient_of: PatientOf) -> Patient:
    """Stands for real weights: a tied head."""
    healthy = patient_of("gemma-3-1b-it", "sdpa")
    model = copy.deepcopy(healthy.reduced)
    model.get_output_embeddings().weight = model.get_input_embeddings().weight
    subject = replace(healthy.subject, weights="real")
    return replace(healthy, subject=subject, model=model, reduced=model)


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


@pytest.mark.parametrize("name", WAITING)
def test_it_changes_something_and_is_undone(patient_of: PatientOf, name: str) -> None:
    fault, there = WAITING[name], patients(patient_of)
    sick = [patient for patient in there if not fault.why_not(patient)]
    if not sick and len(there) <= len(SKELETONS):
        pytest.skip("this release does not know the family that can have it")
    assert sick, f"{name} is applicable to none of the patients here"
    for patient in sick:
        before = seen(patient)
        with suppress(Stop), fault.inject(patient):
            within = seen(patient)
            raise Stop
        shown = SHOWS_IN[fault.group]
        assert within[shown] != before[shown]
        assert seen(patient) == before


def test_what_is_waited_for_does_not_exist_and_all_else_does() -> None:
    existing = {one.id for one in built_in()}
    assert {one.caught_by for one in all_faults().values()} - existing == WAITED_FOR.keys()
