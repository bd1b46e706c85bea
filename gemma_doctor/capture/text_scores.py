"""What a run over a long text gives: losses of some tokens, and which of a few answers it would put."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gemma_doctor.capture import losses
from gemma_doctor.evidence import Floats, frozen


@dataclass(frozen=True)
class Scores:
    """What a run gave.

    Attributes:
        losses: of the scored tokens, shape (n,).
        recall: log-probability of each answer among all answers, shape (facts,); NaN where the run did not get there.
        largest: the largest logit, without its sign.
    """

    losses: Floats
    recall: Floats
    largest: float


def scores(
    model: torch.nn.Module, hidden: torch.Tensor, targets: torch.Tensor, scored: int, answers: Sequence[int]
) -> Scores:
    """Of hidden states at some columns.

    Args:
        model: whose head reads them.
        hidden: shape (m, width).
        targets: the tokens that follow, shape (m,).
        scored: so many of them are text; the others are answers, in order, those that the run did not get to missing.
        answers: token ids to choose from.
    """
    among = torch.tensor(answers, dtype=torch.long, device=hidden.device)
    found, recall, largest = list[torch.Tensor](), list[float](), 0.0
    pairs = zip(torch.split(hidden, losses.CHUNK), torch.split(targets, losses.CHUNK), strict=True)
    for start, (part, wanted) in zip(range(0, len(hidden), losses.CHUNK), pairs, strict=True):
        logits = losses.head_logits(model, part)
        wanted = wanted.to(logits.device)
        found.append(torch.nn.functional.cross_entropy(logits, wanted, reduction="none"))
        largest = max(largest, float(logits.abs().max()))
        asked = slice(max(scored - start, 0), None)
        recall += answered(logits[asked], wanted[asked], among).tolist()
    missing = [float("nan")] * (len(answers) - len(recall))
    nats = numbers(torch.cat(found)[:scored]) if found else frozen(np.zeros(0))
    return Scores(nats, frozen(np.array(recall + missing)), largest)


def answered(logits: torch.Tensor, wanted: torch.Tensor, among: torch.Tensor) -> torch.Tensor:
    """Log-probability of wanted ids among some, from logits of shape (n, vocabulary); shape (n,)."""
    places = (wanted[:, None] == among).int().argmax(dim=1, keepdim=True) if len(among) else wanted[:, None]
    return logits[:, among].log_softmax(dim=1).gather(1, places)[:, 0]


def numbers(values: torch.Tensor) -> Floats:
    """As evidence."""
    return frozen(values.double().cpu().numpy())
