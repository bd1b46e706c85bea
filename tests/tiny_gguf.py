"""GGUF files of a few kilobytes, written with the `gguf` package: a Gemma 3 with a vocabulary of letters."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import numpy as np

LETTERS = ["▁", *string.ascii_lowercase, *string.ascii_uppercase]
TOKENS = ["<pad>", "<eos>", "<bos>", "<unk>", *LETTERS]
LAYERS, HIDDEN, INNER, HEADS, HEAD_DIM = 6, 32, 64, 2, 16
KEYS: dict[str, Any] = {
    "context_length": 256,
    "embedding_length": HIDDEN,
    "block_count": LAYERS,
    "feed_forward_length": INNER,
    "attention.head_count": HEADS,
    "attention.head_count_kv": 1,
    "attention.key_length": HEAD_DIM,
    "attention.value_length": HEAD_DIM,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.sliding_window": 8,
    "rope.freq_base": 1e6,
}
TOKENIZER: dict[str, Any] = {
    "model": "llama",
    "pre": "default",
    "bos_token_id": 2,
    "eos_token_id": 1,
    "unknown_token_id": 3,
    "padding_token_id": 0,
    "add_bos_token": True,
    "add_eos_token": False,
    "add_space_prefix": False,
}


def write(path: Path, architecture: str = "gemma3", **changes: Any) -> Path:
    """A whole file.

    Args:
        path: where.
        architecture: of the keys; the tensors are Gemma 3's in any case.
        changes: keys with "__" for ".", None to leave one out: `rope__scaling__type="linear"`, `add_bos_token=False`.
    """
    import gguf

    changes = {key.replace("__", "."): value for key, value in changes.items()}
    tokens = changes.pop("tokens", TOKENS)
    template = changes.pop("chat_template", None)
    tokenizer = {key: changes.pop(key, value) for key, value in TOKENIZER.items()}
    writer = gguf.GGUFWriter(str(path), architecture)
    for prefix, keys in ((architecture, {**KEYS, **changes}), ("tokenizer.ggml", tokenizer)):
        for key, value in keys.items():
            _add(writer, f"{prefix}.{key}", value)
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(index) for index in range(len(tokens))])
    writer.add_token_types([3] * 4 + [1] * (len(tokens) - 4))
    if template is not None:
        writer.add_chat_template(template)
    for name, shape in _tensors(len(tokens)).items():
        noise = np.random.default_rng(len(name)).standard_normal(shape) / np.sqrt(shape[-1])
        writer.add_tensor(name, (noise + (len(shape) == 1)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)


def _tensors(vocabulary: int) -> dict[str, tuple[int, ...]]:
    whole: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes = {
            "attn_q": (HEADS * HEAD_DIM, HIDDEN),
            "attn_k": (HEAD_DIM, HIDDEN),
            "attn_v": (HEAD_DIM, HIDDEN),
            "attn_output": (HIDDEN, HEADS * HEAD_DIM),
            "attn_q_norm": (HEAD_DIM,),
            "attn_k_norm": (HEAD_DIM,),
            "ffn_gate": (INNER, HIDDEN),
            "ffn_up": (INNER, HIDDEN),
            "ffn_down": (HIDDEN, INNER),
        }
        shapes |= dict.fromkeys(("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"), (HIDDEN,))
        whole |= {f"blk.{layer}.{name}.weight": shape for name, shape in shapes.items()}
    return whole
