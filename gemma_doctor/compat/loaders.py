"""Loading: auto classes and the arguments of `from_pretrained`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from gemma_doctor.published import text_part


def loader_for(published: Mapping[str, Any]) -> Any:
    """The auto class that loads a published configuration's decoder, None if the library has none.

    Speech families have none for the whole, but one for their text part.
    """
    text, _ = text_part(published)
    return auto_class(published["model_type"]) or auto_class(text.get("model_type") or published["model_type"])


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
