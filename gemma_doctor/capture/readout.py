"""Reads attention weights out of the kernel that just ran.

Attention output is linear in the values. Called once more with its values replaced by one-hot columns, as many keys at
a time as a value has entries, the very same function returns the attention weights themselves: with its own mask,
soft-cap, grouped heads and sinks, whatever they are, and in memory that grows with the keys and not with their square.

Registering an attention function of one's own instead would make the library build another mask; asking for
`output_attentions` makes it use another kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from gemma_doctor.evidence import Floats32, frozen

# of every attention function, in order; families hand them over by position or by name
KERNEL_ARGUMENTS = ("module", "query", "key", "value", "attention_mask")


class CannotRead(Exception):
    """A kernel does not put out what attention functions put out."""


def named_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call of an attention function, by name."""
    return {**dict(zip(KERNEL_ARGUMENTS, args, strict=False)), **kwargs}


@torch.inference_mode()
def attention_weights(
    kernel: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], rows: Sequence[int]
) -> Floats32:
    """What some queries of one call really read.

    Args:
        kernel: the attention function that was called.
        args, kwargs: of that call. All its queries are run again: one alone could be computed otherwise, since a kernel
            that is only told to be causal counts queries from the first key.
        rows: indices into its query axis.

    Returns:
        Shape (b, query heads, rows, k).

    Raises:
        CannotRead: its output has no value for every query, head and entry.
    """
    named = named_arguments(args, kwargs)
    query, value = named["query"], named["value"]
    keys, width = value.shape[2], value.shape[3]
    weights = torch.empty((*query.shape[:2], len(rows), keys), dtype=torch.float32)
    one_hot = torch.zeros_like(value, memory_format=torch.contiguous_format)
    arguments = _with_value(args, kwargs, one_hot)
    picked = torch.tensor(list(rows), device=query.device)
    for start in range(0, keys, width):
        stop = min(start + width, keys)
        columns = torch.arange(stop - start, device=value.device)
        one_hot.zero_()
        one_hot[:, :, start + columns, columns] = 1
        read = kernel(*arguments[0], **arguments[1])[0]
        if read.shape != (query.shape[0], query.shape[2], query.shape[1], width):
            raise CannotRead(f"its output has the shape {list(read.shape)}")
        weights[..., start:stop] = read.index_select(1, picked)[..., : stop - start].transpose(1, 2).float().cpu()
    return frozen(weights.numpy())


def picked_outputs(output: torch.Tensor, rows: Sequence[int]) -> Floats32:
    """Some rows of what an attention function put out, shape (b, rows, query heads * head_dim)."""
    picked = output.index_select(1, torch.tensor(list(rows), device=output.device))
    return frozen(picked.flatten(2).float().cpu().numpy())


def _with_value(
    args: Sequence[Any], kwargs: Mapping[str, Any], value: torch.Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    place = KERNEL_ARGUMENTS.index("value")
    if len(args) > place:
        return (*args[:place], value, *args[place + 1 :]), dict(kwargs)
    return tuple(args), {**kwargs, "value": value}
