"""The skeleton: a small model with random weights that keeps everything that decides who reads whom.

The published text mapping is cut before the library's config class sees it, so that whatever the class derives, fills
in or gets wrong is derived, filled in or got wrong for the skeleton as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gemma_doctor import compat
from gemma_doctor.errors import DoctorError, one_line
from gemma_doctor.published import special_ids, text_part

if TYPE_CHECKING:
    import torch

    from gemma_doctor.settings import Settings
    from gemma_doctor.subject import Subject

REDUCED_WINDOW = 64
VOCABULARY = 512
WIDTH = 256
STEP = 8  # kernels of stacked experts want rows of whole 16 bytes
NARROW = {"hidden_size_per_layer_input": 32, "laurel_rank": 16, "moe_intermediate_size": WIDTH // 2}
LONGEST_PERIOD = 12
# Eager attention holds a few float32 copies of heads x W x W scores; 2**25 scores are 134 MB.
MOST_HEADS, MOST_SCORES = 8, 2**25
KV_HEADS = ("num_key_value_heads", "num_global_key_value_heads")
NOT_FOR_THE_SKELETON = ("quantization_config", "dtype", "torch_dtype", "auto_map", "model_type")


def build(subject: Subject, settings: Settings, reduced_window: int = REDUCED_WINDOW) -> tuple[Any, Any, str]:
    """Build a subject's skeleton: float32, eval mode, without gradients, on the CPU.

    Returns:
        The model at the true window W; the model at W' = min(W, `reduced_window`), which shares the first one's weights
        (or is the first one, where W' = W or there is no window); what was cut, in words.

    Raises:
        DoctorError: the installed transformers does not know the family, or refuses the configuration or the attention
            implementation.
    """
    with building(subject, settings.attn_implementation):
        text, full = published_text(subject.published)
        cut = cut_mapping(text, full)
        model = reduced = _new_model(full.model_type, cut, settings)
        randomise(model, settings.seed)
        window = _published_window(text, full)
        if window is not None and window > reduced_window:
            reduced = _new_model(full.model_type, {**cut, "sliding_window": reduced_window}, settings)
            reduced.load_state_dict(model.state_dict(), assign=True)
            reduced.requires_grad_(False)
    return model, reduced, _in_words(full, model.config)


@contextmanager
def building(subject: Subject, attn_implementation: str | None = None) -> Iterator[None]:
    """Whatever the library says to a configuration becomes one line, with the key to correct if it names one."""
    hint = "gemma-doctor check --static looks at the file alone"
    if attn_implementation:
        hint = "leave --attn-implementation to the library"
    try:
        with one_line(f"{subject.name}: transformers {compat.release()} cannot build this model", hint):
            yield
    except DoctorError as error:
        text, prefix = text_part(subject.published)
        named = next((key for key in text if _names(error.message, key)), None)
        if error.__cause__ is not None and named:
            raise DoctorError(error.message, f"correct {prefix}{named} in the configuration") from error.__cause__
        raise


def _names(message: str, key: str) -> bool:
    in_words = key.replace("_", " ")
    return f"'{key}'" in message or f"`{key}`" in message or (in_words != key and in_words in message)


def cut_mapping(text: Mapping[str, Any], full: Any) -> dict[str, Any]:
    """The text part as published, with fewer layers, heads, experts and ids, and smaller widths.

    Args:
        text: the text mapping as published, without what a skeleton has no use for.
        full: the config object that the library makes of it.
    """
    kinds = compat.layer_kinds(full)
    kept = kept_of(full)
    divisor = _head_divisor(text, full)
    cut = {**text, **_cut_layers(text, full, kept)}
    cut |= _cut_heads(cut, full, divisor)
    cut |= _cut_widths(cut, full, full.num_attention_heads // divisor)
    cut |= _cut_vocabulary(text, full)
    cut["tie_word_embeddings"] = False  # tied, the top token is the token just read, and nothing ever flips

    cut = _with_head_dim(cut, full)
    config = compat.new_text_config(full.model_type, cut)
    if compat.layer_kinds(config) != tuple(kinds[index] for index in kept):  # no period, so the class derives others
        cut["layer_types"] = [kinds[index] for index in kept]
    return cut


def _with_head_dim(cut: dict[str, Any], full: Any) -> dict[str, Any]:
    """Widened until heads are as large as they were, where the class derives their size from the width.

    Such classes may refuse the narrow width out of hand, since rotary factors of the published size do not fit it.
    """
    try:
        fits = compat.head_dim(compat.new_text_config(full.model_type, cut)) == compat.head_dim(full)
    except Exception:  # of whatever kind the library's validators like
        fits = False
    return cut if fits else {**cut, "hidden_size": cut["num_attention_heads"] * compat.head_dim(full)}


def kept_of(full: Any) -> tuple[int, ...]:
    """Indices of the layers that a skeleton keeps of the whole model, whose config object is `full`."""
    return kept_layers(compat.layer_kinds(full), _shared(full))


def kept_layers(kinds: Sequence[str], shared: int) -> tuple[int, ...]:
    """Indices of one full period of own layers and, if the last `shared` layers reuse keys, one period of those."""
    own = len(kinds) - shared
    return (*_one_period(kinds[:own]), *(own + index for index in _one_period(kinds[own:])))


def _one_period(kinds: Sequence[str]) -> list[int]:
    """At least two layers, since much goes wrong only from the second on; without a period the first of each kind."""
    for period in range(1, min(len(kinds), LONGEST_PERIOD) + 1):
        if all(kind == kinds[index % period] for index, kind in enumerate(kinds)):
            return list(range(min(max(period, 2), len(kinds))))
    return sorted(kinds.index(kind) for kind in set(kinds))


def _shared(config: Any) -> int:
    return getattr(config, "num_kv_shared_layers", None) or 0


def _cut_layers(text: Mapping[str, Any], full: Any, kept: Sequence[int]) -> dict[str, Any]:
    layers = full.num_hidden_layers
    changed: dict[str, Any] = {
        key: [value[index] for index in kept]
        for key, value in text.items()
        if isinstance(value, list) and len(value) == layers and "token" not in key
    }
    changed["num_hidden_layers"] = len(kept)
    if _shared(full):
        changed["num_kv_shared_layers"] = sum(index >= layers - _shared(full) for index in kept)
    if "max_window_layers" in text:
        changed["max_window_layers"] = sum(index < text["max_window_layers"] for index in kept)
    if "per_layer_config" in text:
        by_index = {int(index): values for index, values in text["per_layer_config"].items()}
        changed["per_layer_config"] = {new: by_index[old] for new, old in enumerate(kept) if old in by_index}
    return changed


def _head_divisor(text: Mapping[str, Any], full: Any) -> int:
    """What all head counts are divided by, so that query:kv ratios stay; if possible two kv heads are left."""
    kinds = [text, *text.get("per_layer_config", {}).values()]
    counts = {kind.get(key) for kind in kinds for key in KV_HEADS} | {_kv_heads(full)}
    largest = math.gcd(full.num_attention_heads, *(count for count in counts if count))
    two_kv_heads = largest % 2 == 0
    heads = 2 * full.num_attention_heads // largest
    affordable = heads <= MOST_HEADS and heads * (compat.window(full) or REDUCED_WINDOW) ** 2 <= MOST_SCORES
    return largest // 2 if two_kv_heads and affordable else largest


def _cut_heads(cut: Mapping[str, Any], full: Any, divisor: int) -> dict[str, Any]:
    def fewer(values: Mapping[str, Any]) -> dict[str, Any]:
        return {**values, **{key: values[key] // divisor for key in KV_HEADS if values.get(key)}}

    changed = fewer({key: cut[key] for key in KV_HEADS if key in cut})
    changed[KV_HEADS[0]] = _kv_heads(full) // divisor
    changed["num_attention_heads"] = full.num_attention_heads // divisor
    if "per_layer_config" in cut:
        changed["per_layer_config"] = {index: fewer(values) for index, values in cut["per_layer_config"].items()}
    return changed


def _kv_heads(full: Any) -> int:
    """Classes that name none have as many as there are query heads."""
    return int(compat.base_value(full, KV_HEADS[0]) or full.num_attention_heads)


def _cut_widths(cut: Mapping[str, Any], full: Any, heads: int) -> dict[str, Any]:
    step = math.lcm(STEP, heads)
    width = math.ceil(WIDTH / step) * step
    changed: dict[str, Any] = {"hidden_size": width, "intermediate_size": 2 * width}
    if isinstance(cut.get("intermediate_size"), list):
        widest = max(cut["intermediate_size"])
        changed["intermediate_size"] = [
            STEP * math.ceil(2 * width * value / widest / STEP) for value in cut["intermediate_size"]
        ]
    changed |= {key: min(getattr(full, key), size) for key, size in NARROW.items() if getattr(full, key, None)}
    top_k = getattr(full, "top_k_experts", None) or getattr(full, "num_experts_per_tok", None)
    if top_k:
        named = (key for key in (compat.experts_key(full), "n_routed_experts") if getattr(full, key, None))
        changed |= {key: min(getattr(full, key), 2 * top_k) for key in list(named)[:1]}
    return changed


def _cut_vocabulary(text: Mapping[str, Any], full: Any) -> dict[str, Any]:
    """Special ids beyond the cut go, each to one of its own, to the ids at its end that are not special."""
    size = min(full.vocab_size, VOCABULARY)
    changed: dict[str, Any] = {"vocab_size": size}
    if getattr(full, "vocab_size_per_layer_input", None) is not None:
        changed["vocab_size_per_layer_input"] = min(full.vocab_size_per_layer_input, size)
    named: dict[str, Any] = {key: getattr(full, key, None) for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    named |= text
    special = special_ids(named)
    beyond = sorted(one for one in special if one >= size)
    new_ids = dict(zip(beyond, (new for new in reversed(range(size)) if new not in special), strict=False))
    for key, value in named.items():
        if special_ids({key: value}):
            listed = isinstance(value, list)
            changed[key] = [new_ids.get(one, one) for one in value] if listed else new_ids.get(value, value)
    return changed


def text_config(published: Mapping[str, Any]) -> Any:
    """The config object that the library makes of a published configuration's text part.

    Raises:
        DoctorError: the installed transformers does not know the family.
    """
    return published_text(published)[1]


def can_build(config: Any) -> bool:
    """The library has a language model for a text part's configuration alone."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    return type(config) in MODEL_FOR_CAUSAL_LM_MAPPING


def published_text(published: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
    """The text part as published, but for what is not for a skeleton, and the config object made of it."""
    text, prefix = text_part(published)
    model_type = text.get("model_type")
    if not model_type:
        compat.require_family(published["model_type"])
        model_type = compat.whole_config(published).get_text_config().model_type
    text = {key: value for key, value in text.items() if key not in NOT_FOR_THE_SKELETON}
    full = compat.new_text_config(model_type, text)
    if not prefix and full.get_text_config() is not full:
        # An image-text family whose file has no text part: its class fills in one whole.
        text, full = {}, compat.new_text_config(full.get_text_config().model_type, {})
    return text, full


def _published_window(text: Mapping[str, Any], full: Any) -> int | None:
    """W in the file's own spelling: bidirectional classes load half of it, and will halve the reduced one as well."""
    window = compat.window(full)
    return window if window is None else text.get("sliding_window") or window


def _new_model(model_type: str, mapping: Mapping[str, Any], settings: Settings) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    chosen = {"attn_implementation": settings.attn_implementation} if settings.attn_implementation else {}
    with torch.random.fork_rng(devices=[]):
        model = AutoModelForCausalLM.from_config(compat.new_text_config(model_type, mapping), **chosen)
    return model.float().eval().requires_grad_(False)


def randomise(model: Any, seed: int) -> None:
    """Weights under which attention matters.

    With the library's own 0.02, attention is flat, and a lost window hardly moves a logit. Here, matrices have
    std 1.4 / sqrt(fan in), embeddings 1 after the scaling that some classes apply (Gemma's sqrt(hidden size) would
    drown what the layers add), and everything else has its usual value, 0 or 1, plus noise of 0.1.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            noise = torch.randn(weight.shape, generator=generator)
            if isinstance(module, torch.nn.Embedding):
                weight.copy_(noise / compat.embedding_scale(module, model.config))
            elif weight.ndim >= 2 and not name.endswith("bias"):
                weight.copy_(noise * (1.4 / math.sqrt(_fan_in(name, weight, model.config.hidden_size))))
            else:
                weight.copy_(_usual(module, name, weight) + 0.1 * noise)
    for module in model.modules():
        if compat.scores_are_unscaled(module):  # near 1, its query norm saturates softmax: a hundredfold the noise
            module.q_norm.weight.div_(math.sqrt(module.head_dim))


def _usual(module: Any, name: str, weight: torch.Tensor) -> float:
    """0 or 1: what a parameter is before training.

    A norm is asked itself, since 4.53 to 4.55 fill those that multiply by 1 + weight with 1 too, which makes attention
    so sharp that rounding noise grows fivefold.
    """
    if name == "weight" and "Norm" in type(module).__name__:
        weight.zero_()
        return float(not module(weight.new_ones(1, 1, len(weight))).any())
    return float(0.5 < weight.mean() < 1.5)


def _fan_in(name: str, weight: torch.Tensor, hidden: int) -> int:
    """Length of the contracted axis. Stacked experts have it last or in the middle, as the family likes."""
    if weight.ndim == 2:
        return weight.shape[-1]
    return weight.numel() // (weight.shape[0] * hidden) if "down" in name else hidden


def _in_words(full: Any, config: Any) -> str:
    """E.g. "2 of 26 layers, 2 of 8 heads, vocabulary 512 of 262,144, random weights"."""
    experts = [("experts", compat.experts_key(full))] if getattr(full, compat.experts_key(full), None) else []
    counts = [("layers", "num_hidden_layers"), ("heads", "num_attention_heads"), *experts]
    parts = [f"{getattr(config, key)} of {getattr(full, key)} {word}" for word, key in counts]
    return ", ".join([*parts, f"vocabulary {config.vocab_size:,} of {full.vocab_size:,}", "random weights"])
