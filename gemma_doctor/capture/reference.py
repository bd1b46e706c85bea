"""The reference route: float32, eager, alone, without a cache. Every other route is held against it.

Families that share KV between layers get one cached prefill instead: their uncached forward was itself broken in some
releases.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from gemma_doctor import compat
from gemma_doctor.capture import ledger
from gemma_doctor.capture.recorder import Recorder
from gemma_doctor.capture.runs import Run, watched
from gemma_doctor.check import CouldNotLook
from gemma_doctor.errors import in_one_line
from gemma_doctor.evidence import LayerRotation, Pass

# Noise floor in float32, in units of eps x max|logit|. Measured over all families (cached against uncached, padded
# against alone): at most 41, and a finding needs four floors.
FLOOR_EPS = 32


@dataclass(frozen=True)
class Reference:
    """The reference route over one text.

    Attributes:
        logits: of the last columns, shape (n, vocabulary).
        floor: noise floor in logits.
    """

    logits: torch.Tensor
    floor: float


class References:
    """Runs the reference route, each text once.

    Args:
        model: the subject's, as most passes run on it.
        shares_kv: the family shares KV between layers.
        window: W in force.

    Attributes:
        first: the first run, recorded, and the rotations of its layers; None before there was one.
    """

    def __init__(self, model: Any, shares_kv: bool, window: int | None) -> None:
        self._model, self._shares_kv, self._window = model, shares_kv, window
        self._known: dict[tuple[torch.dtype, tuple[int, ...]], Reference] = {}
        self.first: tuple[Pass, dict[int, LayerRotation]] | None = None

    @cached_property
    def exact(self) -> Any:
        """The model itself if it is in float32, else a copy of it.

        Raises:
            CouldNotLook: there is no memory for one, or no such copy can be made.
        """
        if compat.is_quantised(self._model):
            raise CouldNotLook("the weights are quantised: no float32 copy to compare with")
        if next(self._model.parameters()).dtype is torch.float32:
            return self._model
        if compat.is_placed(self._model):
            raise CouldNotLook("the model is spread over devices: no float32 copy to compare with")
        try:
            return copy.deepcopy(self._model).float()
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise CouldNotLook("no memory for a float32 copy to compare with") from error
        except (TypeError, RuntimeError) as error:  # of what programs keep on their models
            raise CouldNotLook(f"no float32 copy can be made to compare with: {in_one_line(error)}") from error

    def over(self, tokens: torch.Tensor, last: int, deployed: Any = None) -> Reference:
        """The reference route over a text.

        Args:
            tokens: shape (1, T).
            last: how many columns of logits, from the end.
            deployed: the model whose distance from float32 is the floor; None for the subject's.

        Raises:
            CouldNotLook: it crashed, or its logits are not finite.
        """
        deployed = self._model if deployed is None else deployed
        key = next(deployed.parameters()).dtype, tuple(tokens[0].tolist())
        known = self._known.get(key)
        if known is None or len(known.logits) < last:
            with ledger.entry("reference route"):
                known = self._known[key] = self._run(tokens, last, deployed)
        return replace(known, logits=known.logits[-last:])

    def _run(self, tokens: torch.Tensor, last: int, deployed: Any) -> Reference:
        run = Run(Recorder(torch.ones_like(tokens, dtype=torch.bool).cpu().numpy(), masks=self.first is None), tokens)

        def work() -> None:
            run.logits = (_logits(self.exact, tokens, last, self._shares_kv),)

        # before the recorder looks for the function in use
        with compat.attention_backend_set(self.exact, "eager"):
            watched(self.exact, run, work)
        if run.crash:
            raise CouldNotLook(f"the reference route fails as well: {run.crash.kind}: {run.crash.message}")
        if self.first is None:
            one = Pass("reference", self._window, tokens.shape[1], padded=False, forwards=run.forwards)
            self.first = one, run.recorder.rotations
        logits = run.logits[0]
        if not logits.isfinite().all():
            raise CouldNotLook("the logits of the reference route are not finite")
        return Reference(logits, self._floor(logits, tokens, last, deployed))

    def _floor(self, logits: torch.Tensor, tokens: torch.Tensor, last: int, deployed: Any) -> float:
        if deployed is self.exact:
            return FLOOR_EPS * torch.finfo(torch.float32).eps * float(logits.abs().max())
        ledger.count(1, tokens.numel())
        return float((_logits(deployed, tokens, last, self._shares_kv) - logits).abs().max())

    def rerun(self, tokens: torch.Tensor) -> None:
        """Run it over a text, shape (1, T), once more: somebody watches the model."""
        ledger.count(1, tokens.numel())
        with compat.attention_backend_set(self.exact, "eager"):
            _logits(self.exact, tokens, tokens.shape[1], self._shares_kv)


@torch.inference_mode()
def _logits(model: Any, tokens: torch.Tensor, last: int, use_cache: bool) -> torch.Tensor:
    """Logits of the last columns of one forward, in float32, shape (last, vocabulary)."""
    output = model(input_ids=tokens, use_cache=use_cache, logits_to_keep=last)
    logits: torch.Tensor = output.logits[0, -last:].float()
    return logits
