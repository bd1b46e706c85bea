"""Quantised weights, and models that are already where they should be."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from gemma_doctor.published import text_part

# What the library needs to load a method's weights: one of the modules of each entry.
PACKAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "aqlm": (("aqlm",), ("accelerate",)),
    "auto-round": (("auto_round",),),
    "awq": (("gptqmodel", "awq"), ("accelerate",)),
    "bitnet": (("accelerate",),),
    "bitsandbytes": (("bitsandbytes",), ("accelerate",)),
    "bitsandbytes_4bit": (("bitsandbytes",), ("accelerate",)),
    "bitsandbytes_8bit": (("bitsandbytes",), ("accelerate",)),
    "compressed-tensors": (("compressed_tensors",),),
    "eetq": (("eetq",), ("accelerate",)),
    "fbgemm_fp8": (("fbgemm_gpu",), ("accelerate",)),
    "fp8": (("accelerate",),),
    "gptq": (("gptqmodel", "auto_gptq"), ("optimum",)),
    "higgs": (("flute",), ("accelerate",)),
    "hqq": (("hqq",), ("accelerate",)),
    "mxfp4": (("accelerate",),),
    "quanto": (("optimum.quanto",), ("accelerate",)),
    "quark": (("quark",), ("accelerate",)),
    "spqr": (("spqr_quant",), ("accelerate",)),
    "torchao": (("torchao",),),
    "vptq": (("vptq",), ("accelerate",)),
}
# Where the package has another name than its module.
PACKAGE_NAMES = {
    "auto_round": "auto-round",
    "awq": "autoawq",
    "compressed_tensors": "compressed-tensors",
    "optimum.quanto": "optimum-quanto",
    "quark": "amd-quark",
    "flute": "flute-kernel",
    "fbgemm_gpu": "fbgemm-gpu",
}
# Where the classes of quantised modules and tensors come from, whoever put them into a model.
QUANTISERS = (
    "aqlm",
    "auto_gptq",
    "awq",
    "bitsandbytes",
    "gptqmodel",
    "hqq",
    "optimum.quanto",
    "torch.ao.nn.quantized",
    "torchao",
)


def quantisation(published: Mapping[str, Any]) -> str:
    """With which method a configuration says that its weights are quantised, "" if they are not."""
    for part in (published, text_part(published)[0]):
        named = part.get("quantization_config")
        if isinstance(named, Mapping):
            method = named.get("quant_method")
            if method is None:  # bitsandbytes' own files came before the key
                method = next((f"bitsandbytes_{bits}bit" for bits in (4, 8) if named.get(f"load_in_{bits}bit")), "")
            return str(getattr(method, "value", method))
    return ""


def knows_quantisation(method: str) -> bool:
    """The installed release can load weights that are quantised so; of others it takes the numbers as they are."""
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

    return method == "bitsandbytes" or method in AUTO_QUANTIZATION_CONFIG_MAPPING


def lacking_for(method: str) -> str:
    """A package that this method needs and that is not installed, "" if none is known to be."""
    for modules in PACKAGES.get(method, ()):
        if not any(_installed(module) for module in modules):
            return PACKAGE_NAMES.get(modules[0], modules[0])
    return ""


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def is_quantised(model: Any) -> bool:
    """The model's weights are kept in a form that `.float()` does not undo.

    The library says so of what it loaded quantised itself; what was quantised in memory is known by what it holds.
    """
    said = getattr(model, "hf_quantizer", None) is not None or bool(getattr(model, "is_quantized", False))
    return said or any(map(_holds_rounded, model.modules()))


def _holds_rounded(module: Any) -> bool:
    """The module is a quantiser's own, or a matrix of it is: by its class, or because its numbers have one byte."""
    if type(module).__module__.startswith(QUANTISERS):
        return True
    own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
    return any(_is_rounded(weight) for weight in own if weight.dim() > 1)


def _is_rounded(weight: Any) -> bool:
    import torch

    one_byte = weight.dtype.itemsize == 1 and weight.dtype is not torch.bool
    return one_byte or type(weight.data).__module__.startswith(QUANTISERS)


def is_placed(model: Any) -> bool:
    """The model was put where it belongs when it was loaded, and must not be moved."""
    return is_quantised(model) or bool(getattr(model, "hf_device_map", None))
