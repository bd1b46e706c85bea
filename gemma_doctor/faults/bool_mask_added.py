"""A bool mask reaches a kernel that adds its mask to the scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor.capture.hooks import hooked
from gemma_doctor.capture.masks import readable
from gemma_doctor.faults import attention_of, fault
from gemma_doctor.loading import Patient


def _why_not(patient: Patient) -> str:
    return "" if patient.backend == "eager" else f"{patient.backend} reads a bool mask as meant"


@fault("mask-dtype", why_not=_why_not)
def bool_mask_added(patient: Patient) -> Iterator[None]:
    """Turn the additive masks of all layers into bool masks."""

    def to_bool(_module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        mask = kwargs.get("attention_mask")
        if mask is not None:
            kwargs["attention_mask"] = readable(mask)
        return args, kwargs

    with hooked(attention_of(patient), to_bool):
        yield
