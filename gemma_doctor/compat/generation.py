"""Generation."""

from __future__ import annotations

import copy
import inspect
from typing import Any

from gemma_doctor.compat.caches import cache_argument


def generate(
    model: Any,
    ids: Any,
    attention_mask: Any,
    new_tokens: int,
    *,
    cache: Any = None,
    streamer: Any = None,
    forced: Any = None,
) -> Any:
    """Greedy generation of exactly `new_tokens` tokens with the subject's own generation settings otherwise.

    End tokens are suppressed, sampling is off, raw next-token logits and the cache are returned.

    Args:
        ids, attention_mask: shape (b, columns), the tokens already in `cache` included.
        cache: a cache returned earlier, else None.
        streamer: an object with put() and end().
        forced: ids to "generate" instead of the best ones, shape (new_tokens,): the route that a generation takes, over
            a given text. End tokens in it end nothing.
    """
    config = copy.deepcopy(model.generation_config)
    config.do_sample = False
    config.temperature, config.top_p, config.top_k = 1.0, 1.0, 50
    config.max_new_tokens = config.min_new_tokens = new_tokens
    config.max_length = None
    config.use_cache = True
    config.return_dict_in_generate = config.output_logits = True
    if config.pad_token_id is None:
        config.pad_token_id = 0
    extra: dict[str, Any] = {}
    if cache is not None:
        extra = cache_argument(cache)
        config.cache_implementation = None  # both together are refused
    if forced is not None:
        # None would be filled in with the model's own
        config.eos_token_id = next(one for one in range(len(forced) + 1) if one not in set(forced.tolist()))
        extra["logits_processor"] = [_forcing(forced, ids.shape[1])]
    if extra and "use_model_defaults" in inspect.signature(model.generate).parameters:
        extra["use_model_defaults"] = False  # from 4.50 to 4.57 None is the class's "hybrid", or its end token, again
    return model.generate(ids, attention_mask=attention_mask, generation_config=config, streamer=streamer, **extra)


def _forcing(tokens: Any, prompt: int) -> Any:
    from transformers import LogitsProcessor

    class Forcing(LogitsProcessor):  # type: ignore[misc]
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            chosen = scores.new_full(scores.shape, float("-inf"))
            chosen[:, tokens[input_ids.shape[1] - prompt]] = 0
            return chosen

    return Forcing()


def end_tokens(model: Any) -> list[int]:
    """Ids that end a generation; `generate` above suppresses them."""
    ids = model.generation_config.eos_token_id
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)
