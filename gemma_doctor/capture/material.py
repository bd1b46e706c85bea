"""What routes run with: a drafter, a copy in half precision, a hand-written loop, a streamer."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gemma_doctor import compat

DRAFTED = 5  # tokens at a time
DRAFT_NOISE = 0.1  # of a weight's own standard deviation: a drafter that is often right, and sometimes not


class Loop:
    """A hand-written loop: a model, the cache that it returned last, and how many tokens that has seen."""

    def __init__(self, model: Any, cache: Any) -> None:
        self._model, self._cache, self.seen = model, cache, 0

    def forward(self, ids: torch.Tensor, last: int, run: Callable[..., Any] | None = None) -> list[torch.Tensor]:
        """Feed ids, shape (n,). Returns the logits of the last of them, shape (vocabulary,) each.

        Args:
            ids: shape (n,).
            last: how many logits.
            run: what to call instead of the model: the model compiled.
        """
        given = {} if self._cache is None else compat.cache_argument(self._cache)
        given |= compat.place_argument(self._model, self._cache, self.seen, len(ids))
        call = self._model if run is None else run  # a compiled model has no truth value
        output = call(input_ids=ids[None], use_cache=True, logits_to_keep=last, **given)
        self._cache, self.seen = compat.returned_cache(output), self.seen + len(ids)
        return list(output.logits[0, -last:])

    def roll_back(self, tokens: int) -> None:
        self._cache.crop(-tokens)
        self.seen -= tokens


class Streamer:
    """What generate() streams: the prompt, then token by token (put and end are its interface)."""

    def __init__(self) -> None:
        self.ids: list[torch.Tensor] = []

    def put(self, ids: torch.Tensor) -> None:
        self.ids.append(ids.reshape(-1))

    def end(self) -> None:
        return


def drafter(model: Any) -> Any:
    """A small model that drafts tokens: a copy with some noise on its weights, so that it errs at times."""
    copied = copy.deepcopy(model)
    compat.forget_kept_cache(copied)  # it has the dtype of the model's own weights
    device = next(copied.parameters()).device
    noise = torch.Generator(device=device).manual_seed(0)
    with torch.no_grad():
        for weight in copied.parameters():
            spread = weight.std() if weight.numel() > 1 else 0
            weight.add_(torch.randn(weight.shape, generator=noise, device=device) * spread * DRAFT_NOISE)
    # several tokens each time, however unsure it is: what is rolled back is what this is about
    copied.generation_config = compat.plain_settings(model)
    copied.generation_config.num_assistant_tokens = DRAFTED
    copied.generation_config.num_assistant_tokens_schedule = "constant"
    copied.generation_config.assistant_confidence_threshold = 0.0
    return copied


def in_dtype(model: Any, dtype: torch.dtype) -> Any:
    """A copy of a model as `from_pretrained(dtype=...)` would have made it.

    Parameters and persistent buffers are converted. The others stay: `.to()` would round the frequencies of rotary
    embeddings, which is itself a public fault.
    """
    copied = copy.deepcopy(model)
    compat.forget_kept_cache(copied)  # it has the dtype of the model's own weights
    for parameter in copied.parameters():
        parameter.data = parameter.data.to(dtype)
    for module in copied.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_floating_point() and name not in module._non_persistent_buffers_set:
                setattr(module, name, buffer.to(dtype))
    return copied


@contextmanager
def compiled(model: Any) -> Iterator[tuple[Callable[..., Any], Callable[[], int]]]:
    """A model's forward, compiled: by the default backend on a GPU, without code generation on a CPU.

    What was compiled is thrown away afterwards.

    Yields:
        The compiled model, and what says how many graphs were compiled so far.
    """
    on_cpu = next(model.parameters()).device.type == "cpu"
    backend, graphs = torch._dynamo.lookup_backend("aot_eager" if on_cpu else "inductor"), list[None]()

    def counting(*args: Any, **kwargs: Any) -> Any:
        graphs.append(None)
        return backend(*args, **kwargs)

    try:
        yield torch.compile(model, backend=counting), lambda: len(graphs)
    finally:
        torch._dynamo.reset()
