"""What a route is run on, and what comes out of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from gemma_doctor.capture.runs import Run
from gemma_doctor.evidence import LOGITS, SCORE, Crash


@dataclass(frozen=True)
class Text:
    """One text.

    Attributes:
        name: "prompt W-8".
        ids: the whole text, shape (T,); the first `prompt` of them are the prompt.
        prompt: tokens of the prompt.
        new: tokens to generate after it.
    """

    name: str
    ids: torch.Tensor
    prompt: int
    new: int


@dataclass(frozen=True)
class Attempt:
    """What one route gave for one text, or for one row of a batch.

    Attributes:
        name: text, way and row, in words.
        tokens: that stand there in the end, without pads, shape (T,).
        first: column (without pads) of the first logits; those of column c predict token c + 1.
        logits: shape (n, vocabulary), of the columns from `first` on; None where the route gives none.
        compared: LOGITS, CHOICES or SCORE.
        score: log-probability of tokens[first + 1:], for SCORE.
        row: of the batch.
        pads: columns of padding in the row.
        pad_side: "left" or "right".
        crash: the exception that ended it.
        pass_name: recorded pass that it was read off.
        model: what computed it, where that is not the subject as it is.
        asked: new tokens that generate() was asked for, 0 if it was not called.
        alone: it was not a row among others.
        among: ids that could be chosen at each step, shape (steps, n), for CHOICES; None for all.
        compiled_at: columns of the decode steps at which graphs were compiled, ascending.
    """

    name: str
    tokens: torch.Tensor
    first: int
    logits: torch.Tensor | None = None
    compared: str = LOGITS
    score: float | None = None
    row: int = 0
    pads: int = 0
    pad_side: str = "left"
    crash: Crash | None = None
    pass_name: str = ""
    model: Any = None
    asked: int = 0
    alone: bool = True
    among: torch.Tensor | None = None
    compiled_at: tuple[int, ...] = ()


def named(text: str, way: str) -> str:
    """Of a text that is run in some way."""
    return f"{text}, {way}" if way else text


def attempts(
    name: str,
    run: Run,
    prompt: int,
    mask: torch.Tensor | None = None,
    pass_name: str = "",
    compared: str = LOGITS,
    asked: int = 0,
    model: Any = None,
) -> Iterator[Attempt]:
    """One attempt per row of what came out; without its pads.

    Args:
        name: text and way, in words.
        run: what came out.
        prompt: columns before the first generated token.
        mask: attention mask of the prompt, shape (rows, prompt); None without pads.
        pass_name: the recorded pass that it is.
        compared: LOGITS, CHOICES or SCORE.
        asked: new tokens that generate() was asked for.
        model: what computed it, where that is not the subject as it is.
    """
    count = len(run.tokens)
    for row in range(count):
        # a second turn may have crashed in its first
        columns = min(prompt, run.tokens.shape[1])
        real = torch.ones(columns, dtype=torch.bool) if mask is None else mask[row].bool().cpu()
        pads = int((~real).sum())
        tokens = torch.cat([run.tokens[row, :prompt][real.to(run.tokens.device)], run.tokens[row, prompt:]])
        generated = asked or run.tokens.shape[1] > prompt
        logits = torch.stack([step[row] for step in run.logits]) if run.logits and compared == LOGITS else None
        yield Attempt(
            name=f"{name}, row {row}" if count > 1 else name,
            tokens=tokens,
            first=prompt - pads - 1 if generated else len(tokens) - len(run.logits),
            logits=logits,
            compared=compared,
            score=run.scores[row] if compared == SCORE and run.scores else None,
            row=row,
            pads=pads,
            pad_side="left" if real[-1] else "right",
            crash=run.crash,
            pass_name=pass_name,
            model=model,
            asked=asked,
            alone=count == 1,
        )
