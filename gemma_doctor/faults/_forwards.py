"""Changes what the last layer's MLP puts out, by what its forward is fed: masks, positions, keys and attention stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from gemma_doctor.capture.hooks import Fed, hooked
from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.faults._generation import Options, generate_watched
from gemma_doctor.loading import Patient


@contextmanager
def mlp_edited(patient: Patient, edit: Callable[[Fed, torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Let the last layer's MLP of every model put out something else.

    Args:
        patient: whose models are changed.
        edit: from what the forward is fed, and the MLP's output, shape (b, columns, hidden), to what it puts out
            instead. Layers with shared keys may compute the last columns only.
    """
    fed: list[Fed] = []

    def see(decoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        fed[:] = [Fed.of(decoder, args, kwargs)]

    decoders = [text_decoder(model) for model in patient.models]
    with hooked(decoders, see), mlp_output_changed(patient, lambda output: edit(fed[0], output)):
        yield


@contextmanager
def mlp_output_changed(patient: Patient, change: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """The same, whatever the forward is fed: nothing but the MLP is hooked, as a compiled step needs it."""

    def changed(_module: Any, _args: Any, output: Any) -> Any:
        if isinstance(output, tuple):  # with the router's scores (gpt_oss)
            return change(output[0]), *output[1:]
        return change(output)

    with ExitStack() as stack:
        for model in patient.models:
            stack.callback(text_decoder(model).layers[-1].mlp.register_forward_hook(changed).remove)
        yield


def padded_rows(fed: Fed) -> torch.Tensor:
    """Which rows hold pads, shape (b,); empty where it is not told."""
    return torch.zeros(0, dtype=torch.bool) if fed.padding is None else ~fed.padding.all(dim=1)


def without_last(output: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
    """An MLP's output with nothing for the last column (of some rows, shape (b,))."""
    output = output.clone()
    output[slice(None) if rows is None else rows.to(output.device), -1] = 0
    return output


@contextmanager
def late_at_decode(patient: Patient, where: Callable[[Fed, torch.Tensor], bool]) -> Iterator[None]:
    """Let the last layer's MLP put out at a decode step what it put out at the step before.

    Args:
        patient: whose models are changed.
        where: from what a forward is fed, and the MLP's output: this decode step is late. Asked at every forward.
    """
    kept: list[torch.Tensor] = []

    def late(fed: Fed, output: torch.Tensor) -> torch.Tensor:
        before, kept[:] = kept[:], [output[:, -1:]]
        sick = where(fed, output)
        return before[0] if sick and fed.is_decode_step and before else output

    with mlp_edited(patient, late):
        yield


@contextmanager
def skipped_at_verifying(patient: Patient, drafted: Callable[[Options], bool]) -> Iterator[None]:
    """Drop the last layer's MLP where generate() verifies drafted tokens on a warm cache.

    Args:
        patient: whose models are changed.
        drafted: from the arguments of the generate() that runs (empty where none does): it drafts.
    """

    def drop(fed: Fed, output: torch.Tensor) -> torch.Tensor:
        verifying = fed.start and fed.columns > 1 and drafted(running)
        return torch.zeros_like(output) if verifying else output

    with generate_watched(patient) as running, mlp_edited(patient, drop):
        yield
