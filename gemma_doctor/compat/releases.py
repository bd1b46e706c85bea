"""Releases: which one is installed, and since when it knows what."""

from __future__ import annotations

from gemma_doctor.errors import DoctorError, suggest

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

# The first release that reads the GGUF files of an architecture.
FIRST_GGUF_RELEASE = {"gemma3": "4.52"}
# Architectures that the library's list of readers has under another name.
GGUF_NAMES = {"gpt-oss": "gpt_oss", "minimax-m2": "minimax_m2", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe"}


def release() -> str:
    """Of the installed transformers, e.g. "5.24.0"."""
    import transformers

    return str(transformers.__version__)


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


def reads_gguf(architecture: str) -> bool:
    """The installed release reads GGUF files of this architecture."""
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING

    return any(name in GGUF_CONFIG_MAPPING for name in (architecture, GGUF_NAMES.get(architecture)))
