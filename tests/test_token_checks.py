"""Checks of tokens and of what ends a generation, on evidence made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemma_doctor.checks.generation.stop_tokens import stop_tokens
from gemma_doctor.checks.tokens.bos_token import bos_token
from gemma_doctor.checks.tokens.pad_token import pad_token
from gemma_doctor.checks.tokens.padding_mask import padding_mask
from gemma_doctor.checks.tokens.padding_side import padding_side
from gemma_doctor.checks.tokens.tokenizer_integrity import tokenizer_integrity
from gemma_doctor.checks.tokens.truncation import truncation
from gemma_doctor.evidence import (
    BosLosses,
    BosUse,
    BosWay,
    CutText,
    PaddedBatch,
    PaddedTexts,
    Pieces,
    RoundTrip,
    ShatterCost,
    StopTokens,
    Token,
    TokenizerFacts,
    TokenizerIntegrity,
    Truncation,
    frozen,
)
from gemma_doctor.finding import CheckResult, Finding, Outcome, Severity
from gemma_doctor.testing import run_check

BOS, EOS, PAD = Token(2, "<bos>", True), Token(1, "<eos>", True), Token(0, "<pad>", True)
TURN = Token(106, "<end_of_turn>", True)


def only(result: CheckResult) -> Finding:
    (finding,) = result.findings
    return finding


def severities(result: CheckResult) -> list[Severity]:
    return [one.severity for one in result.findings]


# --- bos-token -------------------------------------------------------------------------------------------------------


def way(count: int, name: str = "tokenizer(text)") -> BosWay:
    return BosWay(name, count, (2,) * count + (7,))


def bos(plain: int = 1, template: int | None = None, both: int | None = None, **changes: Any) -> BosUse:
    through = {
        "template": None if template is None else way(template, "apply_chat_template(tokenize=True)"),
        "both": None if both is None else way(both, "tokenizer(apply_chat_template(tokenize=False))"),
    }
    return BosUse(**({"token": BOS, "family": "gemma3_text", "said_by": "", "plain": way(plain)} | through | changes))


def losses(without: float, twice: float = 0.0, spread: float = 0.5) -> BosLosses:
    """What none and two cost on average; the differences of single tokens spread that far."""
    noise = spread * np.array([1, -1] * 128)
    once = np.full(256, 2.5)
    return BosLosses(frozen(once + without + noise), frozen(once), frozen(once + twice + noise), "256 tokens")


@pytest.mark.parametrize(("template", "both"), [(None, None), (1, 1), (1, 2)])
def test_one_bos_is_healthy(template: int | None, both: int | None) -> None:
    """That the text of a template has one and the tokenizer adds another is so by design, and a note."""
    result = run_check(bos_token, bos=bos(1, template, both))
    assert result.outcome is Outcome.PASS
    assert severities(result) == ([Severity.NOTE] if both == 2 else [])


@pytest.mark.parametrize("family", ["gemma", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text"])
def test_a_gemma_without_bos_is_an_error(family: str) -> None:
    finding = only(run_check(bos_token, bos=bos(0, family=family, losses=losses(0.46))))
    assert finding.severity is Severity.ERROR
    assert finding.title == "tokenizer(text) puts no BOS"
    assert finding.effect.startswith("+0.46 nats per token (standard error 0.031): 2.96 behind none, 2.50 behind one")


def test_gemma_4_may_leave_bos_to_its_template() -> None:
    assert severities(run_check(bos_token, bos=bos(0, 1, 1, family="gemma4_text"))) == [Severity.NOTE]
    assert severities(run_check(bos_token, bos=bos(0, 1, 1, family="gemma3_text"))) == [Severity.ERROR]


def test_two_bos_are_an_error() -> None:
    finding = only(run_check(bos_token, bos=bos(2, 1, 3, losses=losses(0.4, 0.003))))
    assert (finding.severity, finding.title) == (Severity.ERROR, "tokenizer(text) puts BOS 2 times")
    assert "+0.00 nats per token" in finding.effect
    assert only(run_check(bos_token, bos=bos(1, 2, 3))).title == "apply_chat_template(tokenize=True) puts BOS 2 times"


def test_a_template_without_bos() -> None:
    assert severities(run_check(bos_token, bos=bos(1, 0, 1))) == [Severity.ERROR]
    llama = {"family": "llama", "said_by": "its tokenizer"}
    assert severities(run_check(bos_token, bos=bos(1, 0, 1, **llama))) == [Severity.NOTE]
    assert severities(run_check(bos_token, bos=bos(1, 0, 1, **llama, losses=losses(0.02)))) == []
    assert severities(run_check(bos_token, bos=bos(1, 0, 1, **llama, losses=losses(0.6)))) == [Severity.WARNING]


@pytest.mark.parametrize("family", ["qwen2", "olmo3", "gpt_oss", "starcoder2", "phi3"])
def test_families_that_put_none_are_never_accused(family: str) -> None:
    result = run_check(bos_token, bos=bos(0, family=family))
    assert result.outcome is Outcome.NOT_APPLICABLE
    assert "'<bos>'" in result.reason
    for cheap in (losses(0.05), losses(0.3, spread=2.0)):  # little, or no more than chance
        assert run_check(bos_token, bos=bos(0, family=family, losses=cheap)).outcome is Outcome.PASS


def test_what_the_settings_ask_for_or_the_loss_shows_is_missing() -> None:
    said = bos(0, family="deepseek_v3", said_by="add_bos_token in tokenizer_config.json")
    finding = only(run_check(bos_token, bos=said))
    assert (finding.severity, finding.expected) == (
        Severity.ERROR,
        "one BOS, as add_bos_token in tokenizer_config.json asks",
    )
    measured = bos(0, family="mistral", losses=losses(0.5))
    assert severities(run_check(bos_token, bos=measured)) == [Severity.WARNING]


def test_a_template_that_raises_is_said() -> None:
    result = run_check(bos_token, bos=bos(no_template="the chat template raises: roles"))
    assert result.outcome is Outcome.PASS
    assert result.examined is not None
    assert "the chat template raises" in result.examined.sentence


# --- pad-token -------------------------------------------------------------------------------------------------------


def tokenizer(pad: Token | None = PAD, **changes: Any) -> TokenizerFacts:
    fields: dict[str, Any] = {
        "padding_side": "left",
        "pad_token_id": None if pad is None else pad.id,
        "bos_token_id": 2,
        "vocabulary": 100,
        "eos_token_id": 1,
        "pad": pad,
        "own_pad": "<pad>",
        "generation_pad": 0,
        "rows": 100,
    }
    return TokenizerFacts(**(fields | changes))


@pytest.mark.parametrize(
    "facts",
    [
        tokenizer(),
        tokenizer(EOS, own_pad="", generation_pad=1),  # many families have no other
        tokenizer(PAD, generation_pad=None),
        tokenizer(Token(0, "[PAD]", True), own_pad="[PAD]"),
        tokenizer(Token(5, "PAD", False), own_pad="PAD", generation_pad=5),
        tokenizer(rows=None),
        tokenizer(Token(3, "PAD", True), own_pad="", generation_pad=3),  # written like a word, and special
    ],
)
def test_healthy_pad_tokens(facts: TokenizerFacts) -> None:
    assert severities(run_check(pad_token, tokenizer=facts)) == []


@pytest.mark.parametrize(
    ("facts", "severity", "title"),
    [
        (tokenizer(None, own_pad=""), Severity.NOTE, "the tokenizer has no pad token"),
        (tokenizer(EOS, generation_pad=1), Severity.WARNING, "batches are padded with the end token, though"),
        (tokenizer(Token(100, "<pad>", True), generation_pad=100), Severity.ERROR, "the pad token has no row"),
        (tokenizer(Token(7, "▁the"), generation_pad=7), Severity.WARNING, "batches are padded with an ordinary word"),
        (tokenizer(generation_pad=3), Severity.NOTE, "the tokenizer and generate() pad with different tokens"),
    ],
)
def test_sick_pad_tokens(facts: TokenizerFacts, severity: Severity, title: str) -> None:
    finding = only(run_check(pad_token, tokenizer=facts))
    assert finding.severity is severity
    assert finding.title.startswith(title)


# --- truncation ------------------------------------------------------------------------------------------------------


def cutting(*cut: CutText, **changes: Any) -> Truncation:
    fields: dict[str, Any] = {
        "limit": 8,
        "limit_by": "--max-length",
        "side": "right",
        "positions": 64,
        "window": 16,
        "prompts": 1,
        "longest": 12,
        "cut": cut,
    }
    return Truncation(**(fields | changes))


@pytest.mark.parametrize(
    ("cut", "side", "severity", "title"),
    [
        (CutText("given prompt", False, 12, "end"), "right", Severity.WARNING, "the given prompt loses its end"),
        (CutText("given prompt", False, 12, "start"), "left", Severity.NOTE, "the given prompt loses its beginning"),
        (
            CutText("talk", True, 12, "end", False, True),
            "right",
            Severity.ERROR,
            "the talk loses the head of the answer",
        ),
        (CutText("talk", True, 12, "be kind", True), "left", Severity.WARNING, "the talk loses its beginning and BOS"),
    ],
)
def test_what_max_length_cuts_off(cut: CutText, side: str, severity: Severity, title: str) -> None:
    finding = only(run_check(truncation, cutting=cutting(cut, side=side)))
    assert finding.severity is severity
    assert finding.title.startswith(title)
    assert finding.observed == f"4 of 12 tokens, on the {side}: {cut.lost!r}"


def test_a_lost_text_is_cut_and_written_as_python_would() -> None:
    observed = only(run_check(truncation, cutting=cutting(CutText("x", False, 99, "\x1b[31m" + "a" * 500)))).observed
    assert "\x1b" not in observed
    assert len(observed) < 200


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"limit": None, "limit_by": ""}, None),
        ({"limit": 64}, None),
        ({"limit": 32, "prompts": 0, "longest": 0}, Severity.NOTE),
        ({"limit": 16}, Severity.NOTE),
        ({"limit": 15}, Severity.WARNING),
        ({"limit": 15, "window": None}, Severity.NOTE),
        ({"limit": 32, "positions": None}, None),
        ({"limit": 64, "prompts": 0, "longest": 0}, None),
    ],
)
def test_a_tokenizers_own_limit(changes: dict[str, Any], severity: Severity | None) -> None:
    own = {"limit_by": "model_max_length of the tokenizer"} | changes
    assert severities(run_check(truncation, cutting=cutting(**own))) == ([severity] if severity else [])


def test_a_tokenizers_own_limit_cuts_a_prompt_of_this_run() -> None:
    cut = CutText("given prompt", False, 60, "the question?")
    own = cutting(cut, limit=32, limit_by="model_max_length of the tokenizer", longest=60)
    finding = only(run_check(truncation, cutting=own))
    assert finding.severity is Severity.WARNING
    assert finding.observed.endswith("the given prompt has 60 tokens and would lose on the right: 'the question?'")


def test_a_prompt_is_cut_where_the_model_names_no_positions() -> None:
    cut = CutText("given prompt", False, 50, "the question?")
    own = cutting(cut, limit=10, limit_by="model_max_length of the tokenizer", longest=50, positions=None)
    finding = only(run_check(truncation, cutting=own))
    assert (finding.severity, finding.expected, finding.do) == (Severity.WARNING, "all 50 tokens", "give max_length")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"limit": None, "limit_by": "", "positions": None}, "no prompt is given and nothing cuts"),
        ({"limit": 8}, "no prompt is given"),
        ({"limit": 8, "limit_by": "model_max_length of the tokenizer", "positions": None}, "no prompt is given"),
    ],
)
def test_where_nothing_is_cut_nothing_was_looked_at(changes: dict[str, Any], reason: str) -> None:
    result = run_check(truncation, cutting=cutting(prompts=0, longest=0, **changes))
    assert (result.outcome, result.reason) == (Outcome.NOT_APPLICABLE, reason)


def test_without_a_prompt_the_setting_is_looked_at() -> None:
    examined = run_check(truncation, cutting=cutting(prompts=0, longest=0, limit=None, limit_by="")).examined
    assert examined is not None
    assert examined.sentence == "the tokenizer names no limit, the model 64 positions; no prompt given"


# --- padding-mask and padding-side -----------------------------------------------------------------------------------


def padded(**changes: Any) -> PaddedTexts:
    fields: dict[str, Any] = {
        "alone": ((2, 7, 8), (2, 9)),
        "ids": frozen(np.array([[2, 7, 8], [0, 2, 9]])),
        "mask": frozen(np.array([[1, 1, 1], [0, 1, 1]], dtype=bool)),
        "pad_token_id": 0,
        "returned": ("input_ids", "attention_mask"),
    }
    return PaddedTexts(**(fields | changes))


def batch(**changes: Any) -> PaddedBatch:
    fields: dict[str, Any] = {
        "pass_name": "padded batch",
        "side": "left",
        "side_from": "tokenizer",
        "real": padded().mask,
        "deviation": frozen(np.zeros(2)),
        "flips": frozen(np.zeros(2, dtype=bool)),
        "floor": 1e-4,
        "positions": frozen(np.array([[0, 1, 2], [0, 0, 1]])),
        "positions_of": padded().mask,
        "side_before": "left",
        "side_after": "left",
    }
    return PaddedBatch(**(fields | changes))


def test_a_healthy_batch() -> None:
    assert severities(run_check(padding_mask, batch=padded(), ran=batch())) == []
    right = padded(ids=frozen(np.array([[2, 7, 8], [2, 9, 0]])), mask=frozen(np.array([[1, 1, 1], [1, 1, 0]], bool)))
    assert severities(run_check(padding_mask, batch=right)) == []


def test_only_what_was_compared_is_said() -> None:
    bare = padded(mask=None, returned=("input_ids",))
    said = {
        name: examined.sentence
        for name, (one, ran) in {"whole": (padded(), batch()), "bare": (bare, None)}.items()
        if (examined := run_check(padding_mask, batch=one, ran=ran).examined) is not None
    }
    assert said == {
        "whole": "2 rows, 1 pads, the mask held against ids, positions against the mask",
        "bare": "2 rows, 1 pads, no mask",
    }


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"mask": None, "returned": ("input_ids",)}, "the tokenizer returns no attention mask"),
        ({"mask": frozen(np.ones((2, 3), bool))}, "the attention mask of a padded batch does not stand on the text"),
        ({"mask": frozen(np.array([[1, 1, 1], [1, 1, 0]], bool))}, "the attention mask of a padded batch does not"),
        ({"ids": frozen(np.array([[2, 7, 8], [5, 2, 9]]))}, "the attention mask of a padded batch does not"),
    ],
)
def test_sick_batches(changes: dict[str, Any], title: str) -> None:
    finding = only(run_check(padding_mask, batch=padded(**changes), ran=batch()))
    assert finding.severity is Severity.ERROR
    assert finding.title.startswith(title)


def test_positions_that_count_pads_stand_behind_position_ids() -> None:
    counting = batch(positions=frozen(np.array([[0, 1, 2], [0, 0, 2]])))
    finding = only(run_check(padding_mask, batch=padded(), ran=counting))
    assert (finding.gate, finding.where.passes) == ("positions", ("padded batch",))
    shifted = batch(positions=frozen(np.array([[0, 1, 2], [0, 1, 2]])))  # by a constant: harmless
    assert severities(run_check(padding_mask, batch=padded(), ran=shifted)) == []


def test_a_padding_side_that_generate_changes() -> None:
    assert severities(run_check(padding_side, batch=batch(), tokenizer=tokenizer())) == []
    flipped = batch(side_after="right")
    finding = only(run_check(padding_side, batch=flipped, tokenizer=tokenizer()))
    assert (finding.severity, finding.observed) == (Severity.ERROR, "left before, right after")


def test_a_flipped_padding_side_is_told_of_logits_that_are_not_finite() -> None:
    right = frozen(np.array([[1, 1, 1], [1, 1, 0]], dtype=bool))
    sick = batch(side_after="right", real=right, deviation=frozen(np.array([0.0, np.nan])))
    result = run_check(padding_side, batch=sick, tokenizer=tokenizer())
    assert [one.title for one in result.findings] == ["generate() changes the tokenizer's padding side"]
    assert result.outcome is not Outcome.PASS


# --- tokenizer-integrity ---------------------------------------------------------------------------------------------


def vocabulary(**changes: Any) -> TokenizerIntegrity:
    fields: dict[str, Any] = {
        "trips": (RoundTrip("English", "a text", "a text", 0), RoundTrip("emoji", "🙂", "<unk>", 1)),
        "words": 2000,
        "whole": 1999,
        "shattered": (Pieces(Token(9, "▁yyyy"), ("▁y", "yyy")),),
        "markers": 6,
        "split": (),
        "family": "gemma3_text",
        "foreign": (),
        "rows": 100,
        "beyond": (),
    }
    return TokenizerIntegrity(**(fields | changes))


@pytest.mark.parametrize("changes", [{}, {"words": 0, "whole": 0, "shattered": ()}, {"rows": None}])
def test_a_healthy_vocabulary(changes: dict[str, Any]) -> None:
    assert severities(run_check(tokenizer_integrity, seen=vocabulary(**changes))) == []


THE = Pieces(Token(9, "▁the"), ("▁", "t", "h", "e"))
SPLIT = Pieces(Token(105, "<start_of_turn>", True), ("<", "start", ">"), "turn")
GEMMA_4 = Pieces(Token(-1, "<|turn>", True), ("<", "|", "turn", ">"), "turn")
IMAGE = Token(100, "<image_soft_token>", True)


@pytest.mark.parametrize(
    ("changes", "severity", "title"),
    [
        ({"whole": 89, "shattered": (THE,)}, Severity.ERROR, "words that the vocabulary has come out in pieces"),
        ({"split": (SPLIT,)}, Severity.ERROR, "special tokens are read as text"),
        ({"split": (replace(SPLIT, role=""),)}, Severity.WARNING, "special tokens are read as text"),
        ({"foreign": (GEMMA_4,)}, Severity.ERROR, "the chat template writes turn markers"),
        ({"foreign": (GEMMA_4,), "family": "mistral"}, Severity.NOTE, "the chat template writes turn markers"),
        ({"beyond": (IMAGE,)}, Severity.NOTE, "the vocabulary has ids that the embedding has no row for"),
        ({"beyond": (IMAGE, Token(101, "▁word"))}, Severity.ERROR, "the vocabulary has ids that the embedding"),
        ({"trips": (RoundTrip("English", "a text", "atext", 0),)}, Severity.NOTE, "text (English) loses white space"),
        (
            {"trips": (RoundTrip("English", "a text", "a▁text", 0),)},
            Severity.ERROR,
            "text (English) does not come back",
        ),
        ({"trips": (RoundTrip("code", "x > 1", "x &gt; 1", 0),)}, Severity.WARNING, "text (code) does not come back"),
    ],
)
def test_sick_vocabularies(changes: dict[str, Any], severity: Severity, title: str) -> None:
    finding = only(run_check(tokenizer_integrity, seen=vocabulary(**changes)))
    assert finding.severity is severity
    assert finding.title.startswith(title)


def test_what_shattered_words_cost_is_said() -> None:
    cost = ShatterCost(characters=600, tokens=300, whole_tokens=150, nats=1200.0, whole_nats=600.0)
    finding = only(run_check(tokenizer_integrity, seen=vocabulary(whole=0, shattered=(THE,), cost=cost)))
    assert finding.effect == (
        "2.00 nats per character against 1.00 in whole words of its own vocabulary; 2.0 x as many tokens "
        "(600 characters of docstrings)"
    )


# --- stop-tokens -----------------------------------------------------------------------------------------------------


NOWHERE = Token(999_999, "(no token of the vocabulary)", True)


def stops(*tokens: Token, **changes: Any) -> StopTokens:
    fields: dict[str, Any] = {
        "stops": tokens,
        "config": (1,),
        "own": EOS,
        "turn_end": TURN,
        "no_turn_end": "",
        "family": "gemma3_text",
    }
    return StopTokens(**(fields | changes))


@pytest.mark.parametrize(
    "seen",
    [
        stops(EOS, TURN),
        stops(EOS, turn_end=None, no_turn_end="no chat template"),
        stops(EOS, stop_strings=("<end_of_turn>",)),
        stops(TURN, own=TURN),
        stops(EOS, TURN, rows=200),
        stops(EOS, TURN, suppressed=(EOS.id,), least=(8, "min_new_tokens=8"), most=(9, "")),
    ],
)
def test_healthy_end_tokens(seen: StopTokens) -> None:
    assert severities(run_check(stop_tokens, seen=seen)) == []


@pytest.mark.parametrize(
    ("seen", "severity", "title"),
    [
        (stops(), Severity.ERROR, "no token ends a generation"),
        (stops(EOS, TURN, Token(107, "\n")), Severity.ERROR, "1 end token of the settings is ordinary text"),
        (stops(EOS), Severity.ERROR, "the end of a turn does not end a generation"),
        (stops(NOWHERE, rows=200), Severity.ERROR, "no token ends a generation"),
        (stops(EOS, TURN, NOWHERE, rows=200), Severity.NOTE, "1 end token of the settings cannot come"),
        (stops(Token(-1, "", True), rows=200), Severity.ERROR, "no token ends a generation"),
        (stops(no_ids="[None]"), Severity.ERROR, "the end tokens of the settings are no ids"),
        (stops(EOS, TURN, behind=(EOS,)), Severity.WARNING, "the tokenizer ends every text with an end token"),
        (stops(EOS, TURN, suppressed=(EOS.id, TURN.id, 7)), Severity.ERROR, "a generation can never stop"),
        (stops(EOS, TURN, least=(9, "min_new_tokens=9"), most=(9, "")), Severity.ERROR, "a generation can never stop"),
        (stops(EOS, family="gemma2"), Severity.WARNING, "the end of a turn does not end a generation"),
        (stops(EOS, family="qwen2"), Severity.WARNING, "the end of a turn does not end a generation"),
        (stops(TURN), Severity.NOTE, "the tokenizer's end token ends no generation"),
    ],
)
def test_sick_end_tokens(seen: StopTokens, severity: Severity, title: str) -> None:
    finding = only(run_check(stop_tokens, seen=seen))
    assert finding.severity is severity
    assert finding.title == title


def test_a_model_whose_own_end_token_ends_the_turn_was_not_published_without_it() -> None:
    found = run_check(stop_tokens, seen=stops(EOS, own=TURN, family="qwen2")).findings
    assert [one.severity for one in found] == [Severity.ERROR]
