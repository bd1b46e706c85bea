"""What a GGUF file publishes, in the spelling of a config.json, and the same with the file's own names of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gemma_doctor.evidence import FULL, SLIDING, Claim, ConfigFacts, RopeClaim
from gemma_doctor.gguf_file import GgufFile, Long
from gemma_doctor.published import read

# model_type of the architectures that the library calls by another name.
FAMILIES = {
    "command-r": "cohere",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "gpt-oss": "gpt_oss",
    "minimax-m2": "minimax_m2",
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
}
# Keys of the architecture -> keys of a config.json.
KEYS = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "vocab_size": "vocab_size",
}
TOKENS = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "padding_token_id": "pad_token_id"}
# Types of scaling that the file's factor alone describes. Others need more than it says.
SCALINGS = ("linear", "yarn")
PATTERN = "attention.sliding_window_pattern"
NARROW_KEY_LENGTH = "attention.key_length_swa"  # with it, attention.key_length speaks of the full layers


def published(file: GgufFile) -> dict[str, Any]:
    """The file's keys as a config.json would write them; what it does not say is left to the class."""
    mapping: dict[str, Any] = {"model_type": FAMILIES.get(file.architecture, file.architecture)}
    found = {new: file.of_model(old) for old, new in KEYS.items()}
    found |= {new: file.of_tokenizer(old) for old, new in TOKENS.items()}
    mapping |= {key: value for key, value in found.items() if value is not None and not isinstance(value, Long)}
    if file.vocabulary is not None:
        mapping.setdefault("vocab_size", file.vocabulary)
    if mapping.get("sliding_window") == 0:  # some converters write it where there is none
        del mapping["sliding_window"]
    narrow = file.of_model(NARROW_KEY_LENGTH)
    if narrow is not None and "head_dim" in mapping:
        mapping |= {"head_dim": narrow, "global_head_dim": mapping["head_dim"]}
    mapping |= _pattern(file, mapping.get("num_hidden_layers"))
    scaling = _scaling(file)
    return {**mapping, "rope_scaling": scaling} if scaling else mapping


def _pattern(file: GgufFile, layers: object) -> dict[str, Any]:
    """Some architectures say of every layer whether it slides, others how many make a period, most nothing."""
    pattern = file.of_model(PATTERN)
    if isinstance(pattern, list) and len(pattern) == layers:
        return {"layer_types": [SLIDING if slides else FULL for slides in pattern]}
    return {"sliding_window_pattern": pattern} if type(pattern) is int else {}


def _scaling(file: GgufFile) -> dict[str, Any]:
    name, factor = file.of_model("rope.scaling.type"), file.of_model("rope.scaling.factor")
    if name not in SCALINGS or not isinstance(factor, float):
        return {}
    trained = file.of_model("rope.scaling.original_context_length")
    more = {"original_max_position_embeddings": trained} if name == "yarn" and trained else {}
    return {"rope_type": name, "factor": factor, **more}


def facts(file: GgufFile, mapping: Mapping[str, Any], origin: str) -> ConfigFacts:
    """A spelling made by `published`, with the names that its keys have in the file."""
    names = {new: f"{file.architecture}.{old}" for old, new in KEYS.items()}
    names |= dict.fromkeys(("layer_types", "sliding_window_pattern"), f"{file.architecture}.{PATTERN}")
    names["rope_scaling"] = f"{file.architecture}.rope.scaling.type"

    def named(claim: Claim | None) -> Claim | None:
        return None if claim is None else Claim(names.get(claim.key, claim.key), claim.value)

    def rope(claim: RopeClaim) -> RopeClaim:
        return replace(claim, key=names.get(claim.key, claim.key))

    read_as = read(mapping, origin)
    return replace(
        read_as,
        window=named(read_as.window),
        pattern=named(read_as.pattern),
        eps=named(read_as.eps),
        rope={kind: rope(claim) for kind, claim in read_as.rope.items()},
    )
