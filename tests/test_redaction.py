"""What is private leaves no text: paths, names, secrets, prompts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemma_doctor.prompt import Message, Prompt
from gemma_doctor.redaction import Redactor, redactor, stand_ins, technical

PLAIN = Redactor()


@pytest.mark.parametrize(
    "text",
    [
        "cannot read /home/marker/secret-project/config.json",
        "File '/home/marker/a project/x.py', line 3",
        'beside "C:\\Users\\marker\\model.gguf"',
        "in C:\\Users\\marker\\model.gguf: no such file",
        "~/marker/notes.txt is empty",
        "file:///srv/marker/x",
        "\\\\server\\marker\\x",
        "https://me:marker@hub.example/x",
        "https://hub.example/x?token=marker123&a=1",
        "Authorization: Bearer marker.marker.marker",
        "hf_markermarkermarker",
        "sk-marker-marker-marker",
        "write to marker@example.org",
    ],
)
def test_paths_and_secrets_are_taken_out(text: str) -> None:
    assert "marker" not in PLAIN(text)


@pytest.mark.parametrize(
    "text",
    [
        "cos/sin of 3 / 4 layers",
        "weights 1e-06 and/or 4.0",
        "https://github.com/huggingface/transformers/issues/37574",
        "pip install 'transformers>=4.53'",
        "logits off by 2.06 (= W, step 8); 5/7 tokens",
        "transformers.models.gemma3: a/b/c",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert PLAIN(text) == text


def test_values_of_secret_variables_go_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "correcthorse")
    assert redactor()("it says correcthorse-battery") == "it says <secret>-battery"


def test_the_user_and_the_machine_have_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "someone")
    monkeypatch.setenv("HOSTNAME", "vault7")
    assert redactor()("someone on vault7; Someone's") == "<user> on <host>; <user>'s"


def test_a_name_in_a_longer_word_is_another_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER", "gemma")
    assert redactor()("gemma-doctor, gemma3_text") == "gemma-doctor, gemma3_text"


def test_what_hangs_on_a_known_folder_goes_with_it() -> None:
    redact = redactor(["/srv/a folder with spaces"])
    assert redact("no /srv/a folder with spaces/deep/marker.json") == "no <path>"


def test_the_name_of_a_folder_goes_without_its_path() -> None:
    assert redactor(["/srv/secret-project"])("adapter of secret-project") == "adapter of <path>"


def test_paths_stay_if_they_are_asked_for_and_secrets_do_not() -> None:
    assert Redactor(paths=True)("/srv/x/y hf_markermarkermarker") == "/srv/x/y <secret>"


def test_a_stand_in_has_as_many_words_and_none_of_the_text() -> None:
    asked = [
        Prompt("prompt file marker.txt", "marker marker marker"),
        Prompt("conversation talk.yaml", messages=(Message("user", "marker one"), Message("user", ("a marker", "b")))),
    ]
    made = stand_ins(asked)
    assert [one.words for one in made] == [3, 5]
    assert [one.name for one in made] == ["prompt file 1 (stand-in)", "conversation 2 (stand-in)"]
    assert "marker" not in repr(made)
    assert [message.role for message in made[1].messages] == ["user", "user"]


def test_two_stand_ins_differ() -> None:
    first, second = stand_ins([Prompt("given prompt 1", "one two three"), Prompt("given prompt 2", "four five six")])
    assert first.text != second.text


def test_of_a_configuration_only_what_decides_attention_stays() -> None:
    mapping = {
        "_name_or_path": "marker",
        "model_type": "gemma3_text",
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_scaling": {"rope_type": "linear", "factor": 8.0, "note": "marker"},
        "id2label": {"0": "marker"},
        "a key with marker": 1,
        "sliding_window": None,
        "architectures": ["MarkerForCausalLM"],
    }
    assert technical(mapping) == {
        "model_type": "gemma3_text",
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "id2label": {},
        "sliding_window": None,
    }


def test_a_path_from_here_goes_as_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert redactor([str(tmp_path / "plain" / "words")])("plain/words/config.json, line 1") == "<path>, line 1"
