"""Asks the rotary modules for positions directly: no forward of a text that long is needed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from gemma_doctor.capture.masks import dtype_name
from gemma_doctor.capture.model_facts import rotary_tensors, text_decoder
from gemma_doctor.capture.rotation import is_rotation, pairs_once
from gemma_doctor.check import CouldNotLook, NotApplicable
from gemma_doctor.errors import in_one_line, is_ours
from gemma_doctor.evidence import ConfigFacts, RopeClaim, RotaryRange, Turned, frozen
from gemma_doctor.loading import Patient
from gemma_doctor.oracle import lengths_apart

# bfloat16 holds every whole number up to 256.
EXACT_IN_BFLOAT16 = 256
# How far a model is asked that names no end.
WITHOUT_END = 8192


def rotary_range(patient: Patient, loaded: ConfigFacts) -> RotaryRange:
    """What every rotary module of a patient's decoder at the true window makes of positions from first to last.

    Raises:
        NotApplicable: it has none.
        CouldNotLook: it has, and none of them can be asked.
    """
    decoder = text_decoder(patient.model)
    end = patient.subject.config.published.max_positions or loaded.max_positions
    turned, refused = [], ""
    tables = rotary_tensors(patient.model)
    for name, kind, _ in tables:
        module = decoder.get_submodule(name.rpartition(".")[0])
        for positions in _questions(loaded.rope_of(kind), patient.window, end or WITHOUT_END):
            try:
                turned.append(_asked(module, kind, positions))
            except Exception as error:  # a family whose module takes something else than positions is not asked
                if is_ours(error) and not isinstance(error, CouldNotLook):
                    raise
                refused = f"{type(module).__name__}: {in_one_line(error, 100)}"
    if not tables:
        raise NotApplicable("the model has no rotary frequencies")
    if not turned:
        raise CouldNotLook(f"the rotary modules cannot be asked for positions: {refused}")
    return RotaryRange(end, tuple(turned), refused)


def _questions(claim: RopeClaim | None, window: int | None, end: int) -> Iterator[list[int]]:
    """Positions for one call each: a second call where the scaling turns otherwise in longer texts."""
    edges = [] if window is None else [window - 1, window, window + 1]
    exact = range(EXACT_IN_BFLOAT16 - 1, EXACT_IN_BFLOAT16 + 3)
    wanted = {0, 1, *exact, *edges, end // 2 - 1, end // 2, end - 2, end - 1}
    for length in lengths_apart(claim, end):
        yield sorted({one for one in wanted if 0 <= one < length} | {length - 2, length - 1} - {-1})


def _asked(module: Any, kind: str, positions: list[int]) -> Turned:
    """Its own forward is called, past hooks on it: what is wrong on the way to the layers is another question."""
    device = next((one.device for one in module.buffers()), torch.device("cpu"))
    ids = torch.tensor(positions, device=device)[None]
    takes_kind = "layer_type" in inspect.signature(type(module).forward).parameters
    with torch.inference_mode(), _as_before(module):
        said = module.forward(torch.zeros(1, 1, 1, device=device), ids, **({"layer_type": kind} if takes_kind else {}))
    if not is_rotation(said):
        raise CouldNotLook("gives no cos and sin")
    cos, sin = (part[0] for part in said)
    c, s = pairs_once(cos, sin)
    return Turned(kind, frozen(np.array(positions)), frozen(np.arctan2(s, c)), dtype_name(cos.dtype))


@contextmanager
def _as_before(module: Any) -> Iterator[None]:
    """Scalings that follow the length keep the frequencies and the length of the last text in the module."""
    buffers, values = dict(module._buffers), {key: value for key, value in vars(module).items() if key[0] != "_"}
    try:
        yield
    finally:
        module._buffers.clear()
        module._buffers.update(buffers)
        for key in [key for key in vars(module) if key[0] != "_" and key not in values]:
            del vars(module)[key]
        vars(module).update(values)
