"""How strongly a position's logits depend on each earlier token, through the whole stack."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gemma_doctor.check import CouldNotLook
from gemma_doctor.errors import in_one_line, is_ours
from gemma_doctor.evidence import Floats32


def influence(model: Any, ids: torch.Tensor, mask: torch.Tensor, rows: range, use_cache: bool) -> Floats32:
    """Norm of the gradient of each row's top logit at what the embedding module puts out for every token.

    Paths that do not start at the embedding module are left out: the per-layer embeddings of Gemma 3n and 4 read the
    ids once more.

    Args:
        ids, mask: shape (1, T).
        rows: columns whose logits are looked at.
        use_cache: let the forward use a cache (families that share keys between layers).

    Returns:
        Shape (rows, T).

    Raises:
        CouldNotLook: the forward or its derivative failed.
    """
    embedded: list[torch.Tensor] = []

    def keep(_module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor:
        embedded.append(output.detach().requires_grad_(True))
        return embedded[-1]

    handle = model.get_input_embeddings().register_forward_hook(keep)
    try:
        with torch.enable_grad():
            kept = ids.shape[1] - rows.start
            output = model(input_ids=ids, attention_mask=mask, use_cache=use_cache, logits_to_keep=kept)
            logits = output.logits[0, -kept:]
            norms = [_gradient_norms(logits[row - rows.start].max(), embedded[0]) for row in rows]
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise CouldNotLook("no memory for the derivative: ask for a smaller position") from error
    except Exception as error:
        if is_ours(error):
            raise
        raise CouldNotLook(f"the derivative cannot be taken: {in_one_line(error)}") from error
    finally:
        handle.remove()
    return np.stack(norms)


def _gradient_norms(logit: torch.Tensor, at: torch.Tensor) -> Floats32:
    (gradient,) = torch.autograd.grad(logit, at, retain_graph=True)
    norms: Floats32 = gradient[0].float().norm(dim=-1).cpu().numpy()
    return norms
