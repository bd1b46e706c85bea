"""Patients are made once per session: a skeleton takes about a second."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache

import pytest
import torch

from gemma_doctor.errors import DoctorError
from gemma_doctor.loading import Patient, admit
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve

# the models are tiny: a second thread costs more than it brings, and lots more on a busy machine
torch.set_num_threads(1)


@cache
def skeleton(name: str, backend: str | None = None) -> Patient:
    settings = Settings(subject=name, weights="skeleton", attn_implementation=backend)
    try:
        return admit(resolve(settings), settings, lambda line: None)
    except DoctorError as error:
        if " needs transformers >= " in error.message:
            pytest.skip(error.message)
        raise


@pytest.fixture
def patient_of() -> Callable[..., Patient]:
    """Skeleton of a preset; shared, so leave it as it was."""
    return skeleton


@pytest.fixture(scope="module")
def all_cores() -> Iterator[None]:
    """Unlike the skeletons, the real model is large enough for more than one thread; each worker of pytest-xdist takes
    its share of the cores: more threads than cores took ten times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(max((os.cpu_count() or 1) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), 1))
    yield
    torch.set_num_threads(before)
