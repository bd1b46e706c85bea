"""Generation."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from packaging.version import Version

from gemma_doctor.compat.caches import cache_argument
from gemma_doctor.compat.releases import release

# What a subject's own generation settings decide about a plain generation. All else makes it another way of generating.
KEPT = ("bos_token_id", "eos_token_id", "pad_token_id", "cache_implementation", "cache_config")
OTHER_WAYS = (
    "num_beams",
    "num_beam_groups",
    "num_return_sequences",
    "penalty_alpha",
    "dola_layers",
    "guidance_scale",
    "prompt_lookup_num_tokens",
    "assistant_early_exit",
    "prefill_chunk_size",
    "constraints",
    "force_words_ids",
    "stop_strings",
    "max_time",
)
BEYOND_ANY = 2**31  # no vocabulary has so many tokens
SHOWN = 60  # characters of a setting


def plain_settings(model: Any) -> Any:
    """A generation config that keeps of a model's own what is in KEPT. No cache is offloaded where there is no GPU.

    Of end and pad tokens those are kept that generate() can read; the checks of tokens say what is wrong with others.

    A "hybrid" cache among a model's own settings is taken for a default of old and ignored since 4.56 (PR 40135), but
    not where a config is passed, as `generate` below does.
    """
    from transformers import GenerationConfig

    own, plain = model.generation_config, GenerationConfig()
    for name in KEPT:
        if hasattr(own, name):
            setattr(plain, name, getattr(own, name))
    plain.eos_token_id = [one for one in end_tokens(model) if is_id(one)] or None
    plain.pad_token_id = own.pad_token_id if is_id(own.pad_token_id) else 0
    if plain.cache_implementation == "hybrid" and Version(release()) >= Version("4.56"):
        plain.cache_implementation = None
    if str(plain.cache_implementation).startswith("offloaded") and model.device.type == "cpu":
        plain.cache_implementation = None
    return plain


def other_ways(model: Any) -> dict[str, Any]:
    """Settings of a model that make its generate() another way of generating than the plain one, by name."""
    from transformers import GenerationConfig

    own, usual = model.generation_config, GenerationConfig()
    named = {name: getattr(own, name, None) for name in OTHER_WAYS}
    return {name: value for name, value in named.items() if value not in (None, getattr(usual, name, None), 1, 1.0)}


def own_limits(model: Any) -> dict[str, int]:
    """Lengths in tokens that a model's own settings name: `max_length`, `max_new_tokens`.

    Up to release 4.57 every GenerationConfig has a max_length of 20, which nobody asked for.
    """
    from transformers import GenerationConfig

    own, usual = getattr(model, "generation_config", None), GenerationConfig()
    named = {name: getattr(own, name, None) for name in ("max_length", "max_new_tokens")}
    return {
        name: value for name, value in named.items() if isinstance(value, int) and value != getattr(usual, name, None)
    }


@contextmanager
def settings_of(model: Any, config: Any) -> Iterator[None]:
    """generate() fills what it is not told from the model's own settings: for a while they are others."""
    own = model.generation_config
    model.generation_config = config
    try:
        yield
    finally:
        model.generation_config = own


def generate(
    model: Any,
    ids: Any,
    attention_mask: Any,
    new_tokens: int,
    *,
    cache: Any = None,
    streamer: Any = None,
    forced: Any = None,
    among: Any = None,
    **options: Any,
) -> Any:
    """Greedy generation of exactly `new_tokens` tokens, with the subject's own tokens and kind of cache.

    End tokens are suppressed, sampling is off, raw next-token logits and the cache are returned. They are suppressed by
    a processor of our own: from 4.50 to 4.57 assisted decoding refuses min_new_tokens.

    Args:
        ids, attention_mask: shape (b, columns), the tokens already in `cache` included.
        cache: a cache returned earlier, else None.
        streamer: an object with put() and end().
        forced: ids to "generate" instead of the best ones, shape (new_tokens,): the route that a generation takes, over
            a given text. End tokens in it end nothing.
        among: ids that may be chosen at each step, shape (steps, n); None for all.
        options: further ones: fields of a generation config (prefill_chunk_size, num_beams, use_cache ...), else
            arguments of generate (assistant_model).
    """
    plain = plain_settings(model)
    with settings_of(model, plain):
        config = copy.deepcopy(plain)
        extra: dict[str, Any] = {name: options.pop(name) for name in list(options) if not hasattr(config, name)}
        for name, value in {"use_cache": True, **options}.items():
            setattr(config, name, value)
        config.do_sample, config.max_new_tokens, config.max_length = False, new_tokens, None
        config.return_dict_in_generate = config.output_logits = True
        config.output_scores = (config.num_beams or 1) > 1  # sequences_scores come only with them
        if cache is not None:
            extra |= cache_argument(cache)
        if cache is not None or not config.use_cache:
            config.cache_implementation = None  # refused beside a cache; 4.50 warns of it without one
        if forced is not None:
            # None would be filled in with the model's own
            config.eos_token_id = next(one for one in range(len(forced) + 1) if one not in set(forced.tolist()))
            extra["logits_processor"] = [_forcing(forced, ids.shape[1])]
        elif among is not None:
            extra["logits_processor"] = [_choosing(among, ids.shape[1])]
        elif end_tokens(model):
            extra["logits_processor"] = [_suppressing(end_tokens(model))]
        if "use_model_defaults" in inspect.signature(model.generate).parameters:
            extra["use_model_defaults"] = False  # from 4.50 to 4.57 None is the class's "hybrid", or its end token
        return model.generate(ids, attention_mask=attention_mask, generation_config=config, streamer=streamer, **extra)


def _forcing(tokens: Any, prompt: int) -> Any:
    from transformers import LogitsProcessor

    class Forcing(LogitsProcessor):  # type: ignore[misc]
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            chosen = scores.new_full(scores.shape, float("-inf"))
            chosen[:, tokens[input_ids.shape[1] - prompt]] = 0
            return chosen

    return Forcing()


def _choosing(among: Any, prompt: int) -> Any:
    from transformers import LogitsProcessor

    class Choosing(LogitsProcessor):  # type: ignore[misc]
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            return only(scores, among[min(input_ids.shape[1] - prompt, len(among) - 1)][None])

    return Choosing()


def only(logits: Any, among: Any) -> Any:
    """Logits of shape (n, vocabulary), of each row those of some ids alone; all others are -inf.

    Args:
        among: the ids, shape (n, m).
    """
    others = logits.new_full(logits.shape, float("-inf"))
    return others.scatter(1, among, logits.gather(1, among))


def suppressed(logits: Any, tokens: list[int]) -> Any:
    """Logits of shape (n, vocabulary), those of some ids -inf; settings may name ids that there are not."""
    logits = logits.clone()
    logits[:, [one for one in tokens if 0 <= one < logits.shape[1]]] = float("-inf")
    return logits


def _suppressing(tokens: list[int]) -> Any:
    from transformers import LogitsProcessor

    class Suppressing(LogitsProcessor):  # type: ignore[misc]
        def __call__(self, input_ids: Any, scores: Any) -> Any:
            return suppressed(scores, tokens)

    return Suppressing()


def sequence_scores(output: Any) -> tuple[float, ...]:
    """The summed log-probability of every sequence that a beam search returned, () after any other generation.

    They come back divided by the number of new tokens, in all releases from 4.50 on.
    """
    scores = getattr(output, "sequences_scores", None)
    return () if scores is None else tuple(float(score) * len(output.logits) for score in scores)


@contextmanager
def quiet() -> Iterator[None]:
    """The library keeps its warnings to itself for a while: what they warn of is done on purpose."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)


def has_generation_option(name: str) -> bool:
    """The installed release has a field of that name in its generation configs."""
    from transformers import GenerationConfig

    return hasattr(GenerationConfig(), name)


def end_tokens(model: Any) -> list[int]:
    """Ids that end a generation, perhaps without a row; `generate` above suppresses them. See `no_end_tokens`."""
    return [one for one in _listed(model.generation_config.eos_token_id) if is_whole(one)]


def no_end_tokens(model: Any) -> str:
    """The end tokens as they are written, if one of them is no whole number (1.0, "1", true, null in a list)."""
    written = model.generation_config.eos_token_id
    fine = written is None or (_listed(written) and all(map(is_whole, _listed(written))))
    return "" if fine else repr(written)[:SHOWN]


def is_id(value: Any) -> bool:
    """A value may be the id of a token."""
    return is_whole(value) and 0 <= value < BEYOND_ANY


def is_whole(value: Any) -> bool:
    """A value is a whole number; in JSON neither true nor 1.0 is one."""
    return isinstance(value, int) and not isinstance(value, bool)


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
