"""Changes what caches hand over, or what they hold after the prompt, in one layer of each model or in all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from gemma_doctor import compat
from gemma_doctor.faults import no_window, one_attention_of
from gemma_doctor.loading import Patient

# from keys or values, shape (b, kv heads, k, head_dim), to what stands in their place
Edit = Callable[[torch.Tensor], torch.Tensor]

FILLED_BY_NONE = 2**30  # tokens


@contextmanager
def handed_over_edited(patient: Patient, edit: Edit, single: bool = False) -> Iterator[None]:
    """Let one layer hand over something else than it holds, whenever tokens come that are not the first.

    Args:
        patient: whose layer it is.
        edit: what is done to its keys, and to its values.
        single: only where one token comes alone.
    """
    layer = changed_layer(patient)

    def change(update: compat.CacheUpdate) -> Any:
        if update.layer != layer or not update.seen or (single and update.fed != 1):
            return update.handed
        return [edit(states) for states in update.handed]

    with compat.cache_updates_edited(change):
        yield


@contextmanager
def held_edited_after_prompt(
    edit: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]], layer: int | None = None
) -> Iterator[None]:
    """Change what a cache holds once its prompt is stored; what the prompt itself reads stays.

    Args:
        edit: from keys and values that a layer holds to what it holds instead.
        layer: which one; None for all.
    """

    def after(update: compat.CacheUpdate) -> Any:
        if not update.seen and layer in (None, update.layer):
            compat.edit_held(update.cache, update.layer, edit)
        return update.handed

    with compat.cache_updates_edited(after):
        yield


def no_keys_dropped() -> AbstractContextManager[None]:
    """Let sliding cache layers be made for a window that no text fills."""
    return compat.sliding_layers_made_for(lambda _window: FILLED_BY_NONE)


def no_cache_layers(_patient: Patient) -> str:
    """Reason why no patient can have a fault of single layers of a cache."""
    return compat.why_no_cache_layers()


def no_window_in_cache(patient: Patient) -> str:
    """Reason why a patient cannot have a fault of a cache whose window is full."""
    return no_window(patient) or compat.why_no_cache_layers()


def no_layers_that_drop_keys(patient: Patient) -> str:
    """Reason why a patient cannot have a fault of sliding layers that grow and then drop keys."""
    return no_window(patient) or compat.why_no_sliding_layers(patient.reduced)


def changed_layer(patient: Patient) -> int:
    """The index of the layer that is changed; the patient's models have the same ones."""
    return int(one_attention_of(patient.models[0]).layer_idx)
