"""What a GGUF file says of its model and tokenizer is what was loaded from it.

What it proves
    Layers, widths, heads, soft-caps and the ids of special tokens are loaded as the file's keys state them; BOS and EOS
    stand around a plain text where `add_bos_token` and `add_eos_token` say so, and nowhere else; the
    tokenizer has as many tokens as the file lists, and the file's chat template.

Why it matters
    A library reads a GGUF file by translating its keys one by one, and what its table does not have is dropped without
    a word. In transformers 5.12 and 5.16 the packaged Gemma 3 270M loads without the BOS that its file asks for, and
    answers nonsense.

How to fix
    Use a release that reads the key, or set the value by hand after loading. The model's own repository, where there is
    one, is the better source.

Known limits
    Window, number of positions, rotary parameters and epsilon are compared by checks of their own, which take the
    file's keys for the published spelling. A tokenizer that an adapter brings is not held against the file. Whether the
    pieces of words come out whole is looked at by tokenizer-integrity. Keys that other programs alone understand are
    left out. What a key did not say cannot be compared.

References
    The keys: ggml's docs/gguf.md. transformers 5.12.0, 5.16.1 and 4.57.6 on gemma-3-270m-q4_k_m.gguf (measured).
"""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.check import check
from gemma_doctor.evidence import GgufFacts, GgufKey
from gemma_doctor.finding import Examined, Finding, Severity, counted
from gemma_doctor.oracle import same

# Who uses the model otherwise takes no harm: a batch of one, another way to stop.
HARMLESS_AT_TIMES = ("padding_token_id", "eos_token_id")
ANOTHER_RELEASE = "use a release of transformers that reads the key, or set the value after loading"


@check()
def gguf_metadata(facts: GgufFacts) -> Iterator[Finding | Examined]:
    """The keys of a GGUF file arrive in the loaded configuration and tokenizer."""
    yield from (_different(one) for one in (*facts.config, *facts.ids) if not same(one.written, one.loaded))
    yield from (_around(one) for one in facts.added if one.written != one.loaded)
    if facts.tokens is not None and facts.tokens.loaded < facts.tokens.written:
        yield _too_few(facts.tokens)
    if facts.template is not None and facts.template.written != facts.template.loaded:
        yield _template(facts.template)
    single = [one for one in (facts.tokens, facts.template) if one is not None]
    compared = len(facts.config) + len(facts.ids) + len(facts.added) + len(single)
    yield Examined(compared, f"{counted(compared, 'key')} of the file compared with what was loaded")


def _different(one: GgufKey) -> Finding:
    return Finding(
        title=f"{one.place} is not what the GGUF file says",
        severity=Severity.WARNING if one.key.endswith(HARMLESS_AT_TIMES) else Severity.ERROR,
        observed=f"{one.loaded!r} loaded",
        expected=f"{one.written!r} ({one.key})",
        do=ANOTHER_RELEASE,
        standing=True,
    )


def _around(one: GgufKey) -> Finding:
    """A token that the model was trained to see is missing, or one that ends a text stands behind every prompt."""
    name = "BOS" if "bos" in one.key else "EOS"
    wrong = (one.written and name == "BOS") or (one.loaded and name == "EOS")
    return Finding(
        title=f"the tokenizer {'lost' if one.written else 'adds'} the {name} that the GGUF file "
        f"{'asks for' if one.written else 'does not ask for'}",
        severity=Severity.ERROR if wrong else Severity.WARNING,
        observed=f"{name if one.loaded else f'no {name}'} {one.place}",
        expected=f"{name if one.written else f'no {name}'} ({one.key} is {str(one.written).lower()})",
        do=f"{'put the token there' if one.written else 'leave it away'} by hand, or use another release",
        standing=True,
    )


def _too_few(one: GgufKey) -> Finding:
    """One token twice in a file is one token in a tokenizer, so that a small difference alone proves no harm."""
    return Finding(
        title="the tokenizer has fewer tokens than the GGUF file lists",
        severity=Severity.NOTE,
        observed=f"{one.loaded:,} tokens",
        expected=f"{one.written:,} ({one.key})",
        do="see tokenizer-integrity for what it costs",
        standing=True,
    )


def _template(one: GgufKey) -> Finding:
    return Finding(
        title="the tokenizer's chat template is not the GGUF file's",
        severity=Severity.WARNING,
        observed="none" if one.loaded is None else repr(one.loaded),
        expected=f"{one.written!r} ({one.key})",
        do="set tokenizer.chat_template to the file's before apply_chat_template()",
        standing=True,
    )
