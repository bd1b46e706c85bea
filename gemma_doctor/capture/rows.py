"""Reads chosen rows of a text: what generation reads at its decode steps, or what scoring reads in one forward."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gemma_doctor.capture import runs
from gemma_doctor.capture.recorder import Recorder
from gemma_doctor.capture.runs import Run
from gemma_doctor.evidence import Bools
from gemma_doctor.loading import Patient


@dataclass(frozen=True)
class Text:
    """A text to read rows of, alone or behind left pads.

    Attributes:
        ids: shape (1, columns).
        pads: how many of the first columns are pads.
    """

    ids: torch.Tensor
    pads: int

    @property
    def mask(self) -> torch.Tensor:
        """The attention mask, shape (1, columns)."""
        mask = torch.ones_like(self.ids)
        mask[:, : self.pads] = 0
        return mask

    @property
    def real(self) -> Bools:
        real: Bools = self.mask.bool().cpu().numpy()
        return real


def read_decode_steps(patient: Patient, text: Text, first: int, layers: frozenset[int], *, masks: bool) -> Run:
    """Generate the text from column `first` on, token by token, and read every step.

    The prompt is what stands before; where that is nothing, the first real token, whose row is then read there.
    """
    prompt = max(first, text.pads + 1)
    rows = range(first, text.ids.shape[1])
    recorder = Recorder(text.real, lambda start, total: rows, layers, masks)
    # what is generated last is never fed: one more, so that the last row is
    forced = torch.cat([text.ids[0, prompt:], text.ids[0, -1:]])
    return runs.generate(
        patient.model,
        text.ids[:, :prompt],
        len(forced),
        recorder=recorder,
        attention_mask=text.mask[:, :prompt],
        forced=forced,
    )


def read_prefill(
    patient: Patient, text: Text, first: int, layers: frozenset[int], *, masks: bool, use_cache: bool
) -> Run:
    """One forward over the whole text, in which the rows from column `first` on are read."""
    rows = range(first, text.ids.shape[1])
    recorder = Recorder(text.real, lambda start, total: rows, layers, masks)
    return runs.forward(patient.model, text.ids, text.mask, recorder, use_cache=use_cache, last=len(rows))
