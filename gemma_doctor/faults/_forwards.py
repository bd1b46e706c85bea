"""Changes what the last layer's MLP puts out, by what its forward is fed: masks, positions, keys and attention stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from gemma_doctor.capture.hooks import fed_columns, handed_cache, hooked
from gemma_doctor.capture.model_facts import text_decoder
from gemma_doctor.faults._generation import Options, generate_watched
from gemma_doctor.loading import Patient


@dataclass(frozen=True)
class Fed:
    """What one forward of a text decoder is fed.

    Attributes:
        columns: tokens of each row, pads included.
        start: columns that its cache had seen before, 0 without one.
        cache: as it is handed over, None if it is not.
        uncached: there is none, and the model makes none.
        padding: attention mask, shape (b, start + columns), None if it got none or one of another form.
        backend: attention implementation.
    """

    columns: int
    start: int
    cache: Any
    uncached: bool
    padding: torch.Tensor | None
    backend: str

    @property
    def is_decode_step(self) -> bool:
        return self.start > 0 and self.columns == 1

    @property
    def padded(self) -> torch.Tensor:
        """Rows with pads, shape (b,); empty where no mask is known."""
        return torch.zeros(0, dtype=torch.bool) if self.padding is None else (self.padding == 0).any(dim=1)


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
        cache = handed_cache(args, kwargs)
        mask = kwargs.get("attention_mask")
        is_padding = isinstance(mask, torch.Tensor) and mask.dim() == 2
        start = 0 if cache is None else int(cache.get_seq_length())
        uncached = cache is None and kwargs.get("use_cache") is False
        backend = str(decoder.config._attn_implementation)
        fed[:] = [Fed(fed_columns(args, kwargs), start, cache, uncached, mask if is_padding else None, backend)]

    def change(_module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor:
        return edit(fed[0], output)

    with ExitStack() as stack:
        decoders = [text_decoder(model) for model in patient.models]
        stack.enter_context(hooked(decoders, see))
        for decoder in decoders:
            stack.callback(decoder.layers[-1].mlp.register_forward_hook(change).remove)
        yield


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
