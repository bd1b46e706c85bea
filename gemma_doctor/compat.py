"""The one place that knows transformers' names, arguments and constructors by release."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gemma_doctor.errors import DoctorError, suggest
from gemma_doctor.evidence import FULL, SLIDING, CacheLayer


class CannotWatch(Exception):
    """A model's attention function is not where the library's own models have it."""


# --- attention functions ---------------------------------------------------------------------------------------------


@contextmanager
def attention_function_wrapped(
    modeling_module: str, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Wrap the attention function that a modeling file calls, in place and under its own name.

    Under another name the library would build another mask. Eager functions are globals of the modeling file; all
    others stand in its ALL_ATTENTION_FUNCTIONS: a dict up to 4.51, later a mapping over a class-wide one.

    Args:
        modeling_module: dotted name of the module that defines the attention class.
        name: "eager", "sdpa", ...
        wrap: from the function in use to the one to use instead.

    Raises:
        CannotWatch: the modeling file calls no function of that name.
    """
    module = sys.modules[modeling_module]
    if name == "eager":
        original = getattr(module, "eager_attention_forward", None)
        if original is None:
            raise CannotWatch(f"{modeling_module} has no attention function that could be watched")
        module.eager_attention_forward = wrap(original)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            module.eager_attention_forward = original  # type: ignore[attr-defined]
        return
    functions = getattr(module, "ALL_ATTENTION_FUNCTIONS", None)
    if functions is None or name not in functions:
        raise CannotWatch(f"{modeling_module} has no attention function {name!r} that could be watched")
    original = functions[name]
    overridden = getattr(functions, "_local_mapping", functions)
    had_override = name in overridden
    functions[name] = wrap(original)
    try:
        yield
    finally:
        if had_override:
            functions[name] = original
        else:
            del functions[name]


# --- caches ----------------------------------------------------------------------------------------------------------


def is_cache(candidate: object) -> bool:
    from transformers.cache_utils import Cache

    return isinstance(candidate, Cache)


def cache_layers(cache: Any) -> tuple[CacheLayer, ...]:
    """What every layer of a cache has seen and holds.

    Caches are lists of layer objects since 4.54; before, two lists of tensors. The fixed-size caches of those days
    have no cumulative length (they count the non-zero slots of layer 0), so `seen` is None there.
    """
    layers = getattr(cache, "layers", None)
    if layers is not None:
        return tuple(_cache_layer(index, layer) for index, layer in enumerate(layers) if layer.keys is not None)
    fixed = hasattr(cache, "max_cache_len")
    sliding = getattr(cache, "is_sliding", None)
    return tuple(
        CacheLayer(
            layer=index,
            seen=None if fixed else int(cache.get_seq_length(index)),
            stored=int(keys.shape[-2]),
            sliding=bool(sliding[index]) if sliding is not None else False,
            static=fixed,
        )
        for index, keys in enumerate(cache.key_cache)
        if keys.numel()
    )


def _cache_layer(index: int, layer: Any) -> CacheLayer:
    return CacheLayer(
        layer=index,
        seen=int(layer.get_seq_length()),
        stored=int(layer.keys.shape[-2]),
        sliding=bool(getattr(layer, "is_sliding", False)),
        static=hasattr(layer, "max_cache_len"),
        recording=bool(getattr(layer, "record_past", False)),
    )


def cache_argument(cache: Any) -> dict[str, Any]:
    """The keyword under which `generate` and `forward` take a cache: `cache` since 5.2x, `past_key_values` before."""
    return {cache_keyword(): cache}


def returned_cache(output: Any) -> Any:
    """The cache in a model's or generate's output."""
    return getattr(output, cache_keyword())


def cache_keyword() -> str:
    from transformers.modeling_outputs import CausalLMOutputWithPast

    return "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"


def attention_backend(model: Any) -> str:
    """The attention implementation that a model's text decoder is set to."""
    return str(model.config.get_text_config()._attn_implementation)


@contextmanager
def attention_backend_set(model: Any, name: str) -> Iterator[None]:
    """Let a model compute with another attention implementation for a while.

    Since 4.48 the implementation is looked up in the config at every call, so setting it there is enough.
    """
    config = model.config.get_text_config()
    before = config._attn_implementation
    config._attn_implementation = name
    try:
        yield
    finally:
        config._attn_implementation = before


# --- configurations --------------------------------------------------------------------------------------------------


def release() -> str:
    """Of the installed transformers, e.g. "5.24.0"."""
    import transformers

    return str(transformers.__version__)


def text_config(model_type: str, mapping: Mapping[str, Any]) -> Any:
    """The library's config object for a text part's mapping. The mapping is not changed.

    Raises:
        DoctorError: the installed release does not know `model_type`.
    """
    import copy

    from transformers import AutoConfig

    require_family(model_type)
    keys = {key: value for key, value in mapping.items() if key != "model_type"}
    return AutoConfig.for_model(model_type, **copy.deepcopy(keys))


def window(config: Any) -> int | None:
    """W as a loaded text config has it, None where no layer slides."""
    size: int | None = config.sliding_window if SLIDING in layer_kinds(config) else None
    return size


def layer_kinds(config: Any) -> tuple[str, ...]:
    """Kind of every layer as the config class of this release decides it.

    Since 4.53 classes with several kinds read `layer_types`; before, they read a pattern (Gemma 2 has every second
    layer built in) and keep an unread `layer_types`. Classes that read neither have one kind only.
    """
    layers: int = config.num_hidden_layers
    read = inspect.signature(type(config).__init__).parameters
    if "layer_types" in read and config.layer_types is not None:
        return tuple(str(kind) for kind in config.layer_types)
    # Up to 4.50 the window stands beside the switch that turns it off; later the switch makes it None.
    if getattr(config, "sliding_window", None) is None or not getattr(config, "use_sliding_window", True):
        return (FULL,) * layers
    pattern = config.sliding_window_pattern if "sliding_window_pattern" in read else None
    pattern = 2 if config.model_type == "gemma2" else pattern
    return tuple(SLIDING if not pattern or (index + 1) % pattern else FULL for index in range(layers))


def base_value(config: Any, key: str) -> Any:
    """A value that single layers may override, which is why reading it off the object raises since 5.2x."""
    return config.to_dict().get(key)


def head_dim(config: Any) -> int:
    """Size of one head where no layer says otherwise, as the modules of this release compute it."""
    return int(base_value(config, "head_dim") or config.hidden_size // config.num_attention_heads)


def embedding_scale(embedding: Any, config: Any) -> float:
    """What an embedding is multiplied by. Up to 5.3 Gemma 1, Gemma 2 and VaultGemma do it in their forward."""
    scale = getattr(embedding, "embed_scale", None)
    if scale is not None:
        return float(scale)
    return float(config.hidden_size**0.5) if config.model_type in ("gemma", "gemma2", "vaultgemma") else 1.0


def scores_are_unscaled(attention: Any) -> bool:
    """An attention module multiplies queries and keys without 1 / sqrt(head_dim), and leaves it to trained query norms.

    Gemma 3n and Gemma 4 do. Up to 4.57 Gemma 3n keeps its scaling in no attribute.
    """
    return hasattr(attention, "q_norm") and getattr(attention, "scaling", 1.0) == 1.0


def experts_key(config: Any) -> str:
    """Under which name a mixture of experts keeps their number."""
    return "num_local_experts" if hasattr(config, "num_local_experts") else "num_experts"


# --- loading ---------------------------------------------------------------------------------------------------------

# The first release that knows a family of the presets, where that is later than 4.50.
FIRST_RELEASE = {
    "diffusion_gemma": "5.11",
    "gemma3n": "4.53",
    "gemma4": "5.5",
    "gemma4_assistant": "5.8",
    "gemma4_unified": "5.10",
    "gemma4_unified_assistant": "5.10",
    "gpt_oss": "4.55",
    "olmo3": "4.57",
    "t5gemma": "4.53",
    "vaultgemma": "4.57",
}


def require_family(model_type: str, brings_code: bool = False) -> None:
    """Refuse a family that the installed release does not know.

    Args:
        model_type: of the whole configuration or of its text part.
        brings_code: its repository brings code of its own (`auto_map`).

    Raises:
        DoctorError: always when the family is unknown, with the release that would know it.
    """
    from transformers import CONFIG_MAPPING

    if model_type in CONFIG_MAPPING:
        return
    family = model_type.removesuffix("_text")
    if family in FIRST_RELEASE:
        first = FIRST_RELEASE[family]
        raise DoctorError(
            f"{family} needs transformers >= {first}; {release()} is installed", f"pip install 'transformers>={first}'"
        )
    close = suggest(model_type, CONFIG_MAPPING)
    unknown = f"transformers {release()} does not know the model_type {model_type!r}{close}"
    if brings_code:
        raise DoctorError(
            f"{unknown}, and the code that its repository brings (auto_map) is never run",
            "examine a model of a family that the library has itself",
        )
    raise DoctorError(unknown, "correct model_type, or pip install -U transformers")


def whole_config(mapping: Mapping[str, Any]) -> Any:
    """The library's config object for a whole published mapping, as its loaders make it. The mapping is not changed."""
    import copy

    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[mapping["model_type"]].from_dict(copy.deepcopy(dict(mapping)))


def auto_class(model_type: str) -> Any:
    """The auto class that loads a family's decoder, None if the library has none.

    Some image-text families have no causal language model of their own; others are listed with one class under both
    auto classes, and 4.50 warns when that is asked for as a causal language model.
    """
    import transformers
    from transformers.models.auto import modeling_auto

    causal = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(model_type)
    image_text = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(model_type)
    if causal is not None and causal != image_text:
        return transformers.AutoModelForCausalLM
    return transformers.AutoModelForImageTextToText if image_text is not None else None


def dtype_argument(dtype: Any) -> dict[str, Any]:
    """The keyword under which `from_pretrained` takes a dtype: `dtype` since 4.56, `torch_dtype` before."""
    from transformers import PretrainedConfig

    renamed = "dtype" in inspect.signature(PretrainedConfig.__init__).parameters
    return {"dtype" if renamed else "torch_dtype": dtype}


def reads_gguf(architecture: str) -> bool:
    """The installed release reads GGUF files of this architecture ("gemma3": since 4.52)."""
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING

    return architecture in GGUF_CONFIG_MAPPING


def dequantising() -> dict[str, Any]:
    """Arguments with which `from_pretrained` turns a GGUF file into float32 weights that can be saved.

    Releases with GgufConfig keep the file's quantisation unless told otherwise, and cannot save it.
    """
    import torch
    import transformers

    arguments = dtype_argument(torch.float32)
    if hasattr(transformers, "GgufConfig"):
        arguments["quantization_config"] = transformers.GgufConfig(dequantize=True)
    return arguments


# --- generation ------------------------------------------------------------------------------------------------------


def generate(
    model: Any, ids: Any, attention_mask: Any, new_tokens: int, *, cache: Any = None, streamer: Any = None
) -> Any:
    """Greedy generation of exactly `new_tokens` tokens with the subject's own generation settings otherwise.

    End tokens are suppressed, sampling is off, raw next-token logits and the cache are returned.

    Args:
        ids, attention_mask: shape (b, columns), the tokens already in `cache` included.
        cache: a cache returned earlier, else None.
        streamer: an object with put() and end().
    """
    import copy

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
    return model.generate(ids, attention_mask=attention_mask, generation_config=config, streamer=streamer, **extra)


def why_no_cache_layers() -> str:
    """Why caches have no layer objects in this release; "" if they have."""
    from transformers import cache_utils

    return "" if hasattr(cache_utils, "CacheLayerMixin") else "caches have no layer objects before transformers 4.54"


def report_one_less(layer: Any) -> None:
    """Let one cache layer report one token less than it has seen."""
    if "get_seq_length" not in vars(layer):
        seen = layer.get_seq_length
        layer.get_seq_length = lambda *args: max(seen(*args) - 1, 0)
