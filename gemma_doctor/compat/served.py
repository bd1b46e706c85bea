"""Generation as a subject's own settings say: what its users get."""

from __future__ import annotations

import copy
import inspect
from typing import Any

from gemma_doctor.compat.generation import plain_settings, settings_of

# How a token is drawn where do_sample is set, and what of it draws from the whole distribution.
SAMPLING = {
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
}
# What changes the scores before a token is chosen, and what of it leaves them as they are.
STEERING = {
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "bad_words_ids": None,
    "sequence_bias": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "exponential_decay_length_penalty": None,
    "min_length": 0,
    "min_new_tokens": 0,
}


def served_otherwise(model: Any) -> dict[str, Any]:
    """Settings of a model under which its generate() chooses other tokens than the likeliest ones, by name.

    Beams and the like are left out (see `other_ways`): they are routes of their own.
    """
    own = model.generation_config
    sampled = {"do_sample": True} | _set(own, SAMPLING) if own.do_sample else {}
    return {**sampled, **_set(own, STEERING)}


def _set(own: Any, neutral: dict[str, Any]) -> dict[str, Any]:
    named = {name: getattr(own, name, None) for name in neutral}
    return {name: value for name, value in named.items() if value is not None and value not in (neutral[name], [])}


def generate_as_served(model: Any, ids: Any, most: int, seed: int, streamer: Any = None, ends: bool = True) -> Any:
    """generate() with the subject's own settings: sampling, penalties and end tokens as they are deployed.

    Beams and the like are left out, a cache is used, and raw next-token logits and the cache are returned.

    Args:
        ids: a prompt without pads, shape (1, n).
        most: new tokens at most; fewer where an end token comes, or the settings say so.
        seed: of the draws. The state of torch's generators is the same afterwards.
        streamer: an object with put() and end().
        ends: end tokens end it.
    """
    import torch

    config = _served_settings(model, most)
    config.eos_token_id = config.eos_token_id if ends else None
    extra: dict[str, Any] = {}
    if "use_model_defaults" in inspect.signature(model.generate).parameters:
        extra["use_model_defaults"] = False
    devices = [model.device] if model.device.type == "cuda" else []
    with settings_of(model, config), torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        return model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=copy.deepcopy(config),
            streamer=streamer,
            **extra,
        )


def _served_settings(model: Any, most: int) -> Any:
    """The plain settings with all of a model's own that choose tokens, and its own cap where that is the lower one."""
    own, config = model.generation_config, plain_settings(model)
    for name in ("do_sample", *SAMPLING, *STEERING):
        if hasattr(own, name):
            setattr(config, name, getattr(own, name))
    config.max_new_tokens, config.max_length = min(own.max_new_tokens or most, most), None
    if config.min_new_tokens is not None:
        config.min_new_tokens = min(config.min_new_tokens, config.max_new_tokens)
    config.use_cache = config.return_dict_in_generate = config.output_logits = True
    return config
