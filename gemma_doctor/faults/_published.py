"""Lets the published file, or the loaded configuration, say something else than the running model was built from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gemma_doctor import compat, skeleton
from gemma_doctor.loading import Patient
from gemma_doctor.published import read, text_part
from gemma_doctor.undone import attributes_set


@contextmanager
def published_as(patient: Patient, text: Mapping[str, Any]) -> Iterator[None]:
    """Let the subject's file have another text part; what is loaded stays. Its base is what it was before."""
    subject = patient.subject
    _, prefix = text_part(subject.published)
    whole = {**subject.published, prefix.rstrip("."): text} if prefix else {**text}
    before = subject.config
    facts = read(whole, before.published.origin)
    config = replace(before, published=facts, base=before.base or before.published)
    with attributes_set([(patient, "subject", replace(subject, published=whole, config=config))]):
        yield


@contextmanager
def loaded_as(patient: Patient, values: Mapping[str, Any]) -> Iterator[None]:
    """Let the text configuration of the loaded models carry other values; modules stay as they were built."""
    configs = [compat.text_config(model) for model in patient.models]
    with attributes_set([(config, key, value) for config in configs for key, value in values.items()]):
        yield


def written(patient: Patient) -> dict[str, Any]:
    """The text part of the published file, a new mapping."""
    text, _ = text_part(patient.subject.published)
    return {**text}


def class_defaults(patient: Patient) -> dict[str, Any]:
    """What the config class of the text part has for keys that a file does not write."""
    return compat.plain(compat.new_text_config(skeleton.text_config(patient.subject.published).model_type, {}))
