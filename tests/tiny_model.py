"""A whole small Gemma 3 on disk, made in a second: config, weights, tokenizer, chat template, generation settings.

Its weights are random, as a skeleton's, so that attention matters. Its tokenizer is a real one, Gemma-like: BPE with
"▁" for blanks, BOS put in front by a post-processor, turn markers as special tokens.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from gemma_doctor import compat, prompts, skeleton

WINDOW = 16
VOCABULARY = 512
SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
PAD, EOS, BOS, UNK, START_OF_TURN, END_OF_TURN = range(6)

TEXT = {
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "query_pre_attn_scalar": 32,
    "max_position_embeddings": 512,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": [EOS, END_OF_TURN],
}

# Roles alternate, the system's text goes into the first turn of the user, and BOS is written by the template.
TEMPLATE = (
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}"
    "{% set first = messages[0]['content'] + '\n\n' %}{% set turns = messages[1:] %}"
    "{% else %}{% set first = '' %}{% set turns = messages %}{% endif %}"
    "{% for message in turns %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}"
    "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\n' }}"
    "{{ first if loop.first else '' }}"
    "{% if message['content'] is string %}{{ message['content'] | trim }}"
    "{% else %}{% for part in message['content'] %}{{ part['text'] | trim }}{% endfor %}{% endif %}"
    "{{ '<end_of_turn>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)


def tiny_tokenizer(*, chat: bool = True) -> transformers.PreTrainedTokenizerFast:
    """BPE of 512 tokens over printable ASCII, trained on the text that fills prompts."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    printable = [chr(code) for code in range(33, 127)]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=[*printable, "▁", "\n"],
        show_progress=False,
    )
    backend.train_from_iterator([prompts.english(20_000)], trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", BOS)]
    )
    named = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, padding_side="left", **named)
    if chat:
        fast.chat_template = TEMPLATE
    return fast


def tiny_folder(path: Path, *, chat: bool = True, served: dict[str, object] | None = None) -> Path:
    """Save the whole model in the folder `path`, which may not exist yet.

    Args:
        chat: with a chat template.
        served: keys of generation_config.json, over end, pad and BOS tokens.
    """
    path.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(compat.new_text_config("gemma3_text", TEXT)).eval()
    with torch.no_grad():
        skeleton.randomise(model.requires_grad_(False), 0)
    model.save_pretrained(path)
    (path / "config.json").write_text(json.dumps(TEXT, indent=2))  # as published, not as this release would write it
    tiny_tokenizer(chat=chat).save_pretrained(path)
    settings = {"bos_token_id": BOS, "eos_token_id": [EOS, END_OF_TURN], "pad_token_id": PAD, **(served or {})}
    (path / "generation_config.json").write_text(json.dumps(settings, indent=2))
    return path
