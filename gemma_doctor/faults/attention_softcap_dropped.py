"""An attention kernel that cannot cap scores computes for a model that was trained to (transformers PR 31887)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from gemma_doctor import compat
from gemma_doctor.faults import attention_of, fault
from gemma_doctor.loading import Patient


def _capped(patient: Patient) -> list[Any]:
    return [one for one in attention_of(patient) if compat.has_attention_softcap(one)]


def _why_not(patient: Patient) -> str:
    return "" if _capped(patient) else "its attention scores are not capped"


@fault("softcap", why_not=_why_not)
def attention_softcap_dropped(patient: Patient) -> Iterator[None]:
    """Drop the cap of the attention scores in all layers."""
    with ExitStack() as changed:
        for module in _capped(patient):
            changed.enter_context(compat.without_attention_softcap(module))
        yield
