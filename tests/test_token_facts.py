"""What is made evidence of a tokenizer: fast ones and slow ones, with templates of all kinds, beside a skeleton."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transformers
from tokenizers import processors

from gemma_doctor import compat
from gemma_doctor.capture import tokenizer, tokenizer_texts, tokenizer_words
from gemma_doctor.capture.collector import Collector
from gemma_doctor.check import NotApplicable
from gemma_doctor.diagnosis import chosen_checks
from gemma_doctor.evidence import Generations
from gemma_doctor.examine import examine
from gemma_doctor.faults import all_faults
from gemma_doctor.finding import CheckResult, Outcome, Severity
from gemma_doctor.loading import Patient, admit
from gemma_doctor.prompt import Message, Prompt
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve
from gemma_doctor.undone import attributes_set
from tests.tiny_model import BOS, END_OF_TURN, EOS, PAD, TEMPLATE, VOCABULARY, tiny_folder

OF_TOKENS = ("bos-token", "pad-token", "tokenizer-integrity", "truncation", "stop-tokens", "padding-mask")
HOSTILE = "<end_of_turn>\x1b]0;owned\x07[bold red]<script>alert(1)</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def whole(folder: Path) -> Patient:
    settings = Settings(subject=str(folder), weights="real")
    return admit(resolve(settings), settings, lambda line: None)


@pytest.fixture
def patient(whole: Patient) -> Patient:
    """With a tokenizer and generation settings of its own, to be changed."""
    return replace(whole, tokenizer=copy.deepcopy(whole.tokenizer))


class Letters(transformers.PreTrainedTokenizer):  # type: ignore[misc]
    """Written in Python: one token a letter, BOS in front."""

    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012

    def __init__(self, **kwargs: Any) -> None:
        named = ["<pad>", "<eos>", "<bos>", "<unk>"]
        written = [*named, "<start_of_turn>", "<end_of_turn>", *map(chr, range(32, 127)), "\n"]
        self._ids = {text: one for one, text in enumerate(written)}
        self._texts = {one: text for text, one in self._ids.items()}
        names = ("pad_token", "eos_token", "bos_token", "unk_token")
        turns = {one: transformers.AddedToken(written[one], special=True) for one in (4, 5)}
        super().__init__(**dict(zip(names, named, strict=True)), added_tokens_decoder=turns, **kwargs)

    @property
    def vocab_size(self) -> int:
        return len(self._ids)

    def get_vocab(self) -> dict[str, int]:
        return {**self._ids, **self.added_tokens_encoder}

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        return list(text)

    def _convert_token_to_id(self, token: str) -> int:
        return self._ids.get(token, 3)

    def _convert_id_to_token(self, index: int) -> str:
        return self._texts.get(index, "<unk>")

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return "".join(tokens)

    def build_inputs_with_special_tokens(self, token_ids_0: list[int], token_ids_1: Any = None) -> list[int]:
        return [2, *token_ids_0, *(token_ids_1 or [])]


def results_of(patient: Patient, **changes: Any) -> dict[str, CheckResult]:
    settings = Settings(select=OF_TOKENS, weights="real", **changes)
    collector = Collector(patient, settings, lambda line: None, brief=True)
    results, _ = examine(chosen_checks(settings), collector)
    return {one.check: one for one in results}


def loud(results: dict[str, CheckResult]) -> list[str]:
    every = (item for one in results.values() for item in one.findings)
    return [f"{one.check}: {one.title}" for one in every if one.severity > Severity.NOTE]


def test_the_small_tokenizer(patient: Patient) -> None:
    facts, bos = tokenizer.tokenizer_facts(patient), tokenizer.bos_use(patient)
    assert (facts.pad_token_id, facts.eos_token_id, facts.own_pad, facts.rows) == (PAD, EOS, "<pad>", VOCABULARY)
    assert facts.longest is None
    counts = [way.count for way in (bos.plain, bos.template, bos.both) if way is not None]
    assert counts == [1, 1, 2]
    assert bos.losses is None  # nothing is wrong, so nothing is measured
    stops = tokenizer_texts.stop_tokens(patient)
    assert ([one.id for one in stops.stops], stops.turn_end and stops.turn_end.id) == ([EOS, END_OF_TURN], END_OF_TURN)
    seen = tokenizer_words.integrity(patient)
    assert seen.words == seen.whole > 0
    assert not seen.split and not seen.foreign and not seen.beyond and seen.cost is None


def test_faults_change_what_a_tokenizer_makes_of_text(whole: Patient) -> None:
    own = compat.plain_ids(whole.tokenizer, "one two")
    seen = {}
    for name in ("bos-missing", "bos-doubled", "pad-id-wrong", "texts-cut-short"):
        with all_faults()[name].inject(whole):
            changed = whole.tokenizer
            assert changed is not None
            seen[name] = (
                compat.plain_ids(changed, "one two"),
                compat.plain_ids(changed, "one two " * 99, truncation=True),
                changed.pad_token_id,
            )
    assert seen["bos-missing"][0] == own[1:]
    assert seen["bos-doubled"][0] == [BOS, *own]
    assert seen["pad-id-wrong"][2] == EOS
    assert len(seen["texts-cut-short"][1]) == 8
    assert compat.plain_ids(whole.tokenizer, "one two") == own


def test_losses_are_measured_only_where_a_way_is_wrong(whole: Patient) -> None:
    with all_faults()["bos-missing"].inject(whole):
        bos = tokenizer.bos_use(whole)
    assert bos.losses is not None
    assert bos.losses.without.shape == bos.losses.once.shape == bos.losses.twice.shape == (255,)
    assert (bos.losses.without != bos.losses.once).any()


def test_without_a_chat_template(patient: Patient) -> None:
    assert patient.tokenizer is not None
    patient.tokenizer.chat_template = None
    assert tokenizer.bos_use(patient).template is None
    assert tokenizer_texts.stop_tokens(patient).no_turn_end == "no chat template"
    assert loud(results_of(patient)) == []


def test_end_tokens_that_are_not_there(patient: Patient) -> None:
    """Nor does anything stumble over them that generates."""
    with attributes_set([(patient.model.generation_config, "eos_token_id", [EOS, 999_999])]):
        stops = tokenizer_texts.stop_tokens(patient)
        assert (stops.rows, stops.stops[1].text) == (VOCABULARY, tokenizer.NO_TOKEN)
        collector = Collector(patient, Settings(weights="real"), lambda line: None, brief=True)
        assert collector.get(Generations).all[0].clear.size


@pytest.mark.parametrize("written", [[-1], [2**70], [None], [[1, 5]], True, "5", [1.0, 5.0]])
def test_end_tokens_that_are_none_are_one_error(patient: Patient, written: object) -> None:
    with attributes_set([(patient.model.generation_config, "eos_token_id", written)]):
        (finding,) = results_of(patient)["stop-tokens"].findings
        collector = Collector(patient, Settings(weights="real"), lambda line: None, brief=True)
        assert collector.get(Generations).all[0].crash is None
    assert finding.severity is Severity.ERROR
    assert str(written).strip("[]") in finding.observed


@pytest.mark.parametrize("written", [999_999, -1, "0"])
def test_what_generate_pads_with_has_no_row(patient: Patient, written: object) -> None:
    with attributes_set([(patient.model.generation_config, "pad_token_id", written)]):
        assert loud(results_of(patient)) == ["pad-token: generate() pads with an id that has no row in the embedding"]


def put_around(patient: Patient, before: str, after: str = "") -> None:
    own = patient.tokenizer
    assert own is not None
    ids = [[one] if one else [] for one in (before, after)]
    compat.put_special_tokens_around(own, *([own.convert_tokens_to_ids(one) for one in names] for names in ids))


def test_an_end_token_behind_every_text(patient: Patient) -> None:
    put_around(patient, "<bos>", "<eos>")
    assert loud(results_of(patient)) == ["stop-tokens: the tokenizer ends every text with an end token"]


def test_special_tokens_without_a_row(patient: Patient) -> None:
    """A spare one is nobody's error; BOS, or one that the template writes, is in every text."""
    own = patient.tokenizer
    assert own is not None
    own.add_tokens(["<|image|>"], special_tokens=True)
    assert loud(results_of(patient)) == []
    own.chat_template = TEMPLATE.replace("<start_of_turn>", "<|image|>")
    used = "tokenizer-integrity: special tokens that are in use have no row in the embedding"
    assert loud(results_of(patient)) == [used]
    own.chat_template = None
    own.bos_token = "<|image|>"
    put_around(patient, "<|image|>")
    assert loud(results_of(patient)) == ["bos-token: BOS has no row in the embedding", used]


@pytest.mark.parametrize(
    ("template", "broken"),
    [
        ("{{ raise_exception('no <b>talk</b>\x1b[31m') }}", False),
        ("{{ 1 / 0 }}", True),
        ("{{ messages.pop( }}", True),
        ("{{ x.y.z }}", True),
        ("{% for one in messages %}{{ one.content[0].text + '' }}{% endfor %}", False),
    ],
)
def test_a_template_that_raises_stops_nothing(patient: Patient, template: str, broken: bool) -> None:
    """One that says no on purpose, or wants content in parts, is not broken."""
    assert patient.tokenizer is not None
    patient.tokenizer.chat_template = template
    results = results_of(patient)
    assert loud(results) == ["bos-token: the chat template raises on a plain turn of the user"] * broken
    assert {one.outcome for one in results.values() if one.check != "bos-token"} == {Outcome.PASS}
    assert "the chat template raises" in (results["bos-token"].examined or pytest.fail("nothing")).sentence


def test_a_hostile_template_is_shown_as_text(patient: Patient) -> None:
    """Its text goes into findings; control characters do not come out of them as such."""
    assert patient.tokenizer is not None
    patient.tokenizer.chat_template = TEMPLATE.replace("<end_of_turn>", HOSTILE + "<|\x1b[31m|>")
    results = results_of(patient)
    said = " ".join(f"{one.title} {one.observed} {one.expected}" for r in results.values() for one in r.findings)
    assert "\x1b" not in said


def test_turns_of_another_generation_of_the_family(patient: Patient) -> None:
    assert patient.tokenizer is not None
    other = TEMPLATE.replace("<start_of_turn>", "<|turn>").replace("<end_of_turn>", "<turn|>")
    patient.tokenizer.chat_template = other
    results = results_of(patient)
    assert loud(results) == ["tokenizer-integrity: the chat template writes turn markers that are no tokens here"]
    assert "'<|turn>' as " in results["tokenizer-integrity"].findings[0].observed


def test_a_tokenizer_written_in_python(patient: Patient) -> None:
    slow = replace(patient, tokenizer=Letters(padding_side="left"))
    results = results_of(slow)
    assert loud(results) == []
    assert {one.outcome for one in results.values()} == {Outcome.PASS}
    # letters are all the vocabulary has
    assert tokenizer_words.integrity(slow).words == 0
    assert [way.count for way in (tokenizer.bos_use(slow).plain,)] == [1]
    for name in ("words-shattered", "special-token-split", "bos-missing"):
        assert all_faults()[name].why_not(slow)
    with all_faults()["attention-mask-not-returned"].inject(slow):
        assert loud(results_of(slow)) == ["padding-mask: the tokenizer returns no attention mask"]


@pytest.mark.parametrize(
    ("config", "processor", "said_by"),
    [
        ({"add_bos_token": True}, False, "add_bos_token in tokenizer_config.json"),
        ({"add_bos_token": False}, True, ""),
        ({}, True, "the post-processor in tokenizer.json"),
        ({}, False, ""),
        ([], False, ""),
        (None, False, ""),
    ],
)
def test_which_setting_asks_for_bos(
    tmp_path: Path, patient: Patient, config: Any, processor: bool, said_by: str
) -> None:
    own = patient.tokenizer
    assert own is not None
    if not processor:
        own.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B")
    own.save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("not JSON" if config is None else json.dumps(config))
    own.name_or_path = str(tmp_path)
    assert compat.asks_for_bos(own) == said_by
    own.name_or_path = str(tmp_path / "nowhere")
    assert compat.asks_for_bos(own) == ""


@pytest.mark.parametrize(
    ("prompt", "side", "lost", "loses_bos", "loses_turn"),
    [
        (Prompt("given prompt", "one two three four five six"), "right", " six", False, False),
        (Prompt("given prompt", "one two three four five six"), "left", "one", False, False),
        (Prompt("talk", messages=(Message("user", "one two three"),)), "right", "model\n", False, True),
        (Prompt("talk", messages=(Message("user", "one two three"),)), "left", "<bos>", True, False),
    ],
)
def test_what_is_cut_off_a_prompt(
    patient: Patient, prompt: Prompt, side: str, lost: str, loses_bos: bool, loses_turn: bool
) -> None:
    own = patient.tokenizer
    assert own is not None
    own.truncation_side = side
    settings = Settings(prompts=(prompt,), max_length=12, weights="real")
    collector = Collector(patient, settings, lambda line: None)
    (cut,) = tokenizer_texts.truncation(patient, collector.passes, settings).cut
    assert (cut.conversation, cut.loses_bos, cut.loses_turn) == (bool(prompt.messages), loses_bos, loses_turn)
    assert cut.lost.endswith(lost) if side == "right" else cut.lost.startswith(lost)
    whole = compat.chat_text(own, [one.served() for one in prompt.messages]) if prompt.messages else prompt.text
    assert cut.lost in whole


def test_max_length_makes_a_lost_conversation_an_error(patient: Patient) -> None:
    talk = Prompt("conversation talk.yaml", messages=(Message("user", "one two three"),))
    found = results_of(patient, prompts=(talk,), max_length=12)["truncation"].findings
    assert [one.severity for one in found] == [Severity.ERROR]
    assert "the head of the answer" in found[0].title


def test_beside_a_skeleton_the_tokenizer_alone_is_looked_at(folder: Path, tmp_path: Path) -> None:
    bare = Path(shutil.copytree(folder, tmp_path / "bare"))
    (bare / "model.safetensors").unlink()
    settings = Settings(subject=str(bare), weights="skeleton")
    patient = admit(resolve(settings), settings, lambda line: None)
    assert patient.tokenizer is not None
    results = results_of(patient)
    assert loud(results) == []
    assert results.pop("stop-tokens").outcome is Outcome.NOT_APPLICABLE
    assert {one.outcome for one in results.values()} == {Outcome.PASS}
    assert tokenizer.embedding_rows(patient) == VOCABULARY
    with all_faults()["bos-missing"].inject(patient):
        assert tokenizer.bos_use(patient).losses is None  # random weights know nothing of BOS
        assert loud(results_of(patient)) == ["bos-token: tokenizer(text) puts no BOS"]


def test_a_bare_config_has_nothing_of_this(patient_of: Callable[..., Patient]) -> None:
    bare = patient_of("gemma-3-1b-it", "sdpa")
    for look in (tokenizer.tokenizer_facts, tokenizer.bos_use, tokenizer_words.integrity, tokenizer_texts.padded_texts):
        with pytest.raises(NotApplicable, match="a bare config has no tokenizer"):
            look(bare)
    of_tokens = [one for one in all_faults().values() if one.caught_by in OF_TOKENS]
    assert {one.why_not(bare) for one in of_tokens} == {"a bare config has no tokenizer"}
