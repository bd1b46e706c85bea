"""Several prompts, conversations and what is served, on a small whole model: what runs, and what reports say of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_model import END_OF_TURN, EOS, START_OF_TURN, tiny_folder

from gemma_doctor import compat
from gemma_doctor.capture.collector import Collector
from gemma_doctor.capture.tokens import Tokens
from gemma_doctor.diagnosis import chosen_checks, diagnose
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import GREEDY, Generations
from gemma_doctor.examine import examine
from gemma_doctor.finding import Severity
from gemma_doctor.loading import Patient, admit
from gemma_doctor.prompt import Message, Prompt
from gemma_doctor.report import json as as_json
from gemma_doctor.report import text as as_text
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve

SAMPLED = {"do_sample": True, "temperature": 0.7, "top_k": 64, "repetition_penalty": 1.1}
TALK = Prompt(
    "conversation talk.json",
    messages=(Message("system", "Be short."), Message("user", ("What is a window?",))),
)
FIRST, SECOND = Prompt("given prompt 1", "return the default"), Prompt("given prompt 2", "the module of the library")


def said(_: str) -> None:
    pass


def settings_of(folder: Path, *prompts: Prompt, **changes: Any) -> Settings:
    return Settings(subject=str(folder), prompts=prompts, depth="quick", **changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Patient:
    settings = settings_of(folder)
    return admit(resolve(settings), settings, said)


@pytest.fixture
def patient(loaded: Patient) -> Iterator[Patient]:
    """With its own generation settings again afterwards."""
    own = loaded.model.generation_config
    loaded.model.generation_config = copy.deepcopy(own)
    yield loaded
    loaded.model.generation_config = own


def serve(patient: Patient, **settings: Any) -> None:
    for name, value in settings.items():
        setattr(patient.model.generation_config, name, value)


def generated(patient: Patient, *prompts: Prompt, **changes: Any) -> Generations:
    brief = changes.pop("brief", False)
    settings = settings_of(Path(patient.subject.name), *prompts, **changes)
    made: Generations = Collector(patient, settings, said, brief=brief).get(Generations)
    return made


# --- what is run -----------------------------------------------------------------------------------------------------


def test_plain_settings_and_no_prompt_make_no_pass_of_their_own(patient: Patient) -> None:
    assert [one.pass_name for one in generated(patient).all] == ["long generate"]


def test_every_further_prompt_is_generated_on_across_the_edge(patient: Patient) -> None:
    first, second = generated(patient, FIRST, SECOND).all
    assert (first.pass_name, second.pass_name) == ("long generate", "given prompt 2")
    assert second.way == GREEDY
    assert second.prompt_length + len(second.tokens) >= 16 + 64
    assert len(second.reference) == len(second.entropy) == len(second.tokens)


def test_a_further_prompt_far_below_the_edge_is_cut_short(patient: Patient) -> None:
    _, second = generated(patient, FIRST, SECOND, margin=300).all
    assert len(second.tokens) == 128
    asked = generated(patient, FIRST, SECOND, max_new_tokens=140).all
    assert [len(one.tokens) for one in asked] == [140, 140]


def test_a_conversation_is_what_its_template_writes(patient: Patient) -> None:
    tokens = Tokens(patient, (TALK,), 0)
    assert tokens.user is not None
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "What is a window?"}]
    text = patient.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert tokens.user.tolist() == patient.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokens.user.tolist().count(START_OF_TURN) == 2


def test_a_conversation_is_served_as_well(patient: Patient) -> None:
    long, served = generated(patient, TALK).all
    assert (long.pass_name, served.pass_name) == ("long generate", "as served: conversation talk.json")
    assert (long.way, served.way) == (GREEDY, "as served: greedy, end tokens in force")
    ends = [i for i, one in enumerate(served.tokens) if one in (EOS, END_OF_TURN)]
    assert ends in ([], [len(served.tokens) - 1])
    alike = min(len(served.tokens) - 1, len(long.tokens))
    assert served.tokens[:alike].tolist() == long.tokens[:alike].tolist()  # greedy both, up to an end token


def test_an_end_token_ends_what_is_served_and_is_named(patient: Patient) -> None:
    plain = generated(patient, FIRST).all[0]
    third = int(plain.tokens[3])
    serve(patient, eos_token_id=[EOS, END_OF_TURN, third], suppress_tokens=[EOS, END_OF_TURN])
    served = generated(patient, FIRST).all[-1]
    assert served.way == f"as served: suppress_tokens=[{EOS}, {END_OF_TURN}], end tokens in force"
    assert (served.ended_by, int(served.tokens[-1])) == (third, third)
    assert served.tokens.tolist() == plain.tokens[: plain.tokens.tolist().index(third) + 1].tolist()


def test_settings_that_choose_other_tokens_are_served_and_prove_nothing(patient: Patient) -> None:
    serve(patient, **SAMPLED)
    one, other = generated(patient).all, generated(patient).all
    long, served = one
    assert served.pass_name == "as served"
    assert "do_sample=True, temperature=0.7, top_k=64, repetition_penalty=1.1" in served.way
    assert served.drawn and served.settings["repetition_penalty"] == 1.1
    assert not served.clear.any()
    assert served.tokens.tolist() == other[1].tokens.tolist()  # seeded
    assert served.tokens.tolist() != generated(patient, seed=1).all[1].tokens.tolist()
    assert long.tokens.tolist() == other[0].tokens.tolist()


def test_brief_passes_serve_little(patient: Patient) -> None:
    serve(patient, repetition_penalty=0.5)
    (long, served) = generated(patient, brief=True, margin=200).all
    assert len(long.tokens) > 200
    assert len(served.tokens) <= 40


def test_the_state_of_the_generators_is_left_alone(patient: Patient) -> None:
    import torch

    serve(patient, **SAMPLED)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    generated(patient)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_beams": 4},
        {"temperature": 0.2, "top_p": 0.5},  # without do_sample they mean nothing
        {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "bad_words_ids": []},
        {"max_new_tokens": 5, "use_cache": False},
    ],
)
def test_settings_that_choose_no_other_token(patient: Patient, settings: dict[str, Any]) -> None:
    serve(patient, **settings)
    assert compat.served_otherwise(patient.model) == {}


def test_what_is_served_keeps_to_its_own_cap(patient: Patient) -> None:
    serve(patient, max_new_tokens=5)
    assert len(generated(patient, TALK).all[-1].tokens) <= 5
    serve(patient, max_new_tokens=10_000, min_new_tokens=5_000)
    assert len(generated(patient, TALK).all[-1].tokens) == 64


# --- what is refused -------------------------------------------------------------------------------------------------


def refusal(patient: Patient, prompt: Prompt) -> DoctorError:
    with pytest.raises(DoctorError) as caught:
        Tokens(patient, (FIRST, prompt), 0)
    assert caught.value.hint and "\n" not in caught.value.message + caught.value.hint
    return caught.value


def test_a_template_that_refuses_is_quoted(patient: Patient) -> None:
    twice = replace(TALK, messages=(Message("user", "a"), Message("user", "b")))
    assert "the chat template refuses it: Conversation roles must alternate" in refusal(patient, twice).message


def test_a_template_that_prints_parts_as_python_does(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient.tokenizer, "chat_template", "{% for m in messages %}{{ m['content'] }}{% endfor %}")
    assert "writes the parts of a message as Python would print them" in refusal(patient, TALK).message


def test_no_template_and_no_tokenizer(patient: Patient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient.tokenizer, "chat_template", None)
    assert "has no chat template" in refusal(patient, TALK).message
    bare = replace(patient, tokenizer=None)
    with pytest.raises(DoctorError, match="has no tokenizer, so no chat template"):
        Tokens(bare, (TALK,), 0)


def test_a_prompt_longer_than_the_positions(patient: Patient) -> None:
    found = refusal(patient, Prompt("prompt file long.txt", "word " * 600))
    assert found.message.startswith("the prompt file long.txt has ")
    assert "the model has 512 positions" in found.message


def test_on_a_skeleton_the_length_is_kept(patient: Patient) -> None:
    skeleton = replace(patient, subject=replace(patient.subject, weights="skeleton"))
    exact = Tokens(skeleton, (TALK,), 0).given[0]
    assert len(exact.ids) == len(Tokens(patient, (TALK,), 0).given[0].ids)
    assert "one a token of the conversation talk.json (the vocabulary is cut" in exact.source
    rough = Tokens(replace(skeleton, tokenizer=None), (TALK, FIRST), 0)
    assert [len(one.ids) for one in rough.given] == [6, 3]
    assert "one a word of the conversation talk.json (no tokenizer" in rough.given[0].source


# --- what reports say ------------------------------------------------------------------------------------------------


def test_the_report_names_every_prompt_and_is_the_same_twice(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model", served=SAMPLED)
    settings = settings_of(folder, FIRST, SECOND, TALK, select=("mask-dtype", "cache-parity"))
    report = diagnose(settings, said)
    assert report.exit_code in (0, 1)  # some releases are sick
    assert [one["name"] for one in report.passes["prompts"]] == [  # type: ignore[attr-defined]
        "given prompt 2",
        "conversation talk.json",
        "as served: conversation talk.json",
    ]
    first, again = as_json.render(report), as_json.render(diagnose(settings, said))
    assert first.split('"timing"')[0] == again.split('"timing"')[0]
    ran = {one["name"]: one for one in json.loads(first)["passes"]["ran"]}
    assert {"long generate", "reference route", "padded batch", "given prompt 2"} <= set(ran)
    assert ran["given prompt 2"]["forwards"] == report.passes["prompts"][0]["generated"]  # type: ignore[index]
    assert set(json.loads(first)["timing"]["passes"]) == set(ran)
    text = as_text.render(report)
    assert "from the given prompt 1" in text
    assert "other texts from docstrings" in text
    assert "\nas served: conversation talk.json: prompt " in text
    assert "; do_sample=True, temperature=0.7, top_k=64, repetition_penalty=1.1, end tokens in force\n" in text
    assert "passes that ran" not in text
    verbose = as_text.render(report, verbosity=1)
    assert "passes that ran" in verbose
    assert all(f"\n  {name} " in verbose for name in ran)


@pytest.mark.parametrize(
    "settings", [{"do_sample": True, "temperature": 0.0}, {"do_sample": True, "top_k": -5}, {"repetition_penalty": 0.0}]
)
def test_settings_that_generate_refuses_are_an_error_that_names_them(
    patient: Patient, settings: dict[str, object]
) -> None:
    serve(patient, **settings)
    collector = Collector(patient, Settings(weights="real"), lambda line: None, brief=True)
    results, _ = examine(chosen_checks(Settings(select=("long-generate",))), collector)
    (finding,) = results[0].findings
    name, value = list(settings.items())[-1]
    assert (finding.severity, finding.standing) == (Severity.ERROR, True)
    assert finding.title == f"generate() refuses the subject's own settings: {name}={value}"
