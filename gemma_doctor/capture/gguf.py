"""Holds the keys of a GGUF file beside what the library made of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor import compat, gguf_config
from gemma_doctor.check import NotApplicable
from gemma_doctor.evidence import GgufFacts, GgufKey
from gemma_doctor.loading import FromGguf

# Window, positions, rotary parameters and epsilon are the published spelling that checks of their own compare.
COMPARED = (
    "block_count",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attn_logit_softcapping",
    "final_logit_softcapping",
)
# A null turns these off; other values that a class does not know say nothing.
NULL_IS_OFF = ("attn_logit_softcapping", "final_logit_softcapping")
LONGEST_TEMPLATE = 60


def gguf_facts(loaded: FromGguf | None) -> GgufFacts:
    """What was written and what was loaded.

    Raises:
        NotApplicable: the model was not loaded from a GGUF file.
    """
    if loaded is None:
        raise NotApplicable("the weights are from no GGUF file")
    tokenizer = loaded.tokenizer
    return GgufFacts(
        config=tuple(_config(loaded)),
        ids=tuple(_ids(loaded)) if tokenizer is not None else (),
        added=tuple(_added(loaded)) if tokenizer is not None else (),
        tokens=_tokens(loaded),
        template=_template(loaded) if tokenizer is not None else None,
    )


def _config(loaded: FromGguf) -> Iterator[GgufKey]:
    """The spelling of a config.json is not always one to one: of heads by layer, say, only the file knows."""
    published = gguf_config.published(loaded.file)
    for key in COMPARED:
        name = gguf_config.KEYS[key]
        if key == "attention.key_length" and "global_head_dim" in published:
            name = "global_head_dim"
        written, there = published.get(name), loaded.config.get(name)
        if isinstance(written, (int, float)) and (there is not None or name in NULL_IS_OFF):
            yield GgufKey(f"{loaded.file.architecture}.{key}", written, there, name)


def _ids(loaded: FromGguf) -> Iterator[GgufKey]:
    """Files name a BOS for models as well that have none (Qwen's do)."""
    for key, name in gguf_config.TOKENS.items():
        written = loaded.file.of_tokenizer(key)
        unused = name == "bos_token_id" and not loaded.file.of_tokenizer("add_bos_token")
        if isinstance(written, int) and not unused:
            yield GgufKey(f"tokenizer.ggml.{key}", written, getattr(loaded.tokenizer, name, None), f"tokenizer.{name}")


def _added(loaded: FromGguf) -> Iterator[GgufKey]:
    before, after = compat.special_tokens_around(loaded.tokenizer)
    for name, around in (("bos", before), ("eos", after)):
        written, one = loaded.file.of_tokenizer(f"add_{name}_token"), loaded.file.of_tokenizer(f"{name}_token_id")
        if isinstance(written, bool) and one is not None:
            place = f"{'in front of' if name == 'bos' else 'behind'} a plain text"
            yield GgufKey(f"tokenizer.ggml.add_{name}_token", written, one in around, place)


def _tokens(loaded: FromGguf) -> GgufKey | None:
    count = loaded.file.vocabulary
    if count is None or loaded.tokenizer is None:
        return None
    return GgufKey("tokenizer.ggml.tokens", count, len(loaded.tokenizer), "tokenizer")


def _template(loaded: FromGguf) -> GgufKey | None:
    written = loaded.file.keys.get("tokenizer.chat_template")
    if not isinstance(written, str):
        return None
    there = getattr(loaded.tokenizer, "chat_template", None)
    same = isinstance(there, str) and there.strip() == written.strip()
    return GgufKey(
        "tokenizer.chat_template", _cut(written), _cut(written if same else there), "tokenizer.chat_template"
    )


def _cut(text: Any) -> str | None:
    """Enough to know a template by; two that differ further on differ in their length."""
    if not isinstance(text, str):
        return None
    return text if len(text) <= LONGEST_TEMPLATE else f"{text[:LONGEST_TEMPLATE]} ... ({len(text):,} characters)"
