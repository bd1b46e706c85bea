"""Configurations: building them, and reading what differs by release."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

from gemma_doctor.compat.releases import require_family
from gemma_doctor.evidence import FULL, SLIDING


def text_config(model: Any) -> Any:
    """The configuration of a model's text decoder."""
    return model.config.get_text_config()


def new_text_config(model_type: str, mapping: Mapping[str, Any]) -> Any:
    """The library's config object for a text part's mapping. The mapping is not changed.

    Raises:
        DoctorError: the installed release does not know `model_type`.
    """
    from transformers import AutoConfig

    require_family(model_type)
    keys = {key: value for key, value in mapping.items() if key != "model_type"}
    return AutoConfig.for_model(model_type, **copy.deepcopy(keys))


def whole_config(mapping: Mapping[str, Any]) -> Any:
    """The library's config object for a whole published mapping, as its loaders make it. The mapping is not changed."""
    from transformers import CONFIG_MAPPING

    return CONFIG_MAPPING[mapping["model_type"]].from_dict(copy.deepcopy(dict(mapping)))


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


def has_experts(model: Any) -> bool:
    """The model is a mixture of experts."""
    config = text_config(model)
    return bool(getattr(config, experts_key(config), None))


def experts_key(config: Any) -> str:
    """Under which name a mixture of experts keeps their number."""
    return "num_local_experts" if hasattr(config, "num_local_experts") else "num_experts"
