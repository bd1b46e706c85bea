"""Loss per token of a text under a model: what a wrong token, a lost window or a stretched context costs."""

from __future__ import annotations

from typing import Any

import torch

from gemma_doctor import compat
from gemma_doctor.capture import ledger, runs
from gemma_doctor.capture.model_facts import kv_sources, text_decoder
from gemma_doctor.check import CouldNotLook
from gemma_doctor.errors import in_one_line
from gemma_doctor.undone import method_replaced

CHUNK = 128  # columns of logits at a time: of Gemma's 262,144 words 134 MB in float32


@torch.inference_mode()
def losses(model: Any, ids: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
    """Teacher-forced loss per token under one forward, uncached (cached where layers share keys).

    Args:
        model: a causal language model.
        ids: the text, shape (n,).
        positions: which tokens to score, each from 1 to n - 1, shape (m,); None for all of them.

    Returns:
        Nats of tokens 1 .. n - 1, or of those at `positions`, float32, on the CPU.
    """
    ids = ids.to(model.device)
    scored = torch.arange(1, len(ids), device=ids.device) if positions is None else positions.to(ids.device)
    return token_losses(model, hidden_states(model, ids)[scored - 1], ids[scored])


def measured(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """`losses` of all tokens, for those who only want to say what something costs.

    Raises:
        CouldNotLook: the model raises on the text, or memory is short.
    """
    try:
        return losses(model, ids)
    except CouldNotLook:
        raise
    except Exception as error:
        runs.only_the_subjects(error)
        raise CouldNotLook(f"the model raises on a text: {type(error).__name__}: {in_one_line(error)}") from error


@torch.inference_mode()
def hidden_states(model: Any, ids: torch.Tensor, **arguments: Any) -> torch.Tensor:
    """What the text decoder hands to the head, shape (n, width), of ids of shape (n,).

    Args:
        arguments: of the decoder's forward, e.g. a cache; without one nothing is cached, unless layers share keys.
    """
    arguments.setdefault("use_cache", bool(kv_sources(model)))
    ledger.count(1, len(ids))
    hidden: torch.Tensor = text_decoder(model)(input_ids=ids[None], **arguments).last_hidden_state[0]
    return hidden


@torch.inference_mode()
def token_losses(model: Any, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Nats of target ids, shape (m,), given the hidden states before them, shape (m, width); some columns at a time."""
    found = []
    for start in range(0, len(targets), CHUNK):
        part = slice(start, start + CHUNK)
        logits = head_logits(model, hidden[part])
        found.append(torch.nn.functional.cross_entropy(logits, targets[part], reduction="none"))
    return torch.cat(found).cpu()


@torch.inference_mode()
def head_logits(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    """What the model's own code makes of hidden states of shape (m, width): logits in float32, (m, vocabulary).

    Its decoder is passed over, so that soft-caps and scales of the head are the library's, whatever the family.

    Raises:
        CouldNotLook: the model's code does not put up with that; it says nothing about the model.
    """
    ids = torch.zeros(1, len(hidden), dtype=torch.long, device=hidden.device)
    handed = compat.decoder_output(hidden[None])
    try:
        with method_replaced(text_decoder(model), "forward", lambda *args, **kwargs: handed):
            logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits[0].float()
    except Exception as error:
        why = f"the head cannot be run on its own: {type(error).__name__}: {in_one_line(error)}"
        raise CouldNotLook(why) from error
    return logits
