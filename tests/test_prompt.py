"""Prompts and conversations as they are given: order, names, and what is refused in one line. No torch."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from gemma_doctor.errors import DoctorError
from gemma_doctor.prompt import Message, conversation, given
from gemma_doctor.settings import Settings, resolve

SAID = [{"role": "user", "content": "What is a window?"}]


def written(folder: Path, content: object, name: str = "talk.json") -> str:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def of(folder: Path, text: str) -> Settings:
    return resolve({"config": written(folder, text, "run.yaml")}, {}, folder)


# --- several of them -------------------------------------------------------------------------------------------------


def test_texts_come_first_then_files_then_conversations(tmp_path: Path) -> None:
    file, talk = written(tmp_path, "from a file", "a.txt"), written(tmp_path, SAID)
    found = given(["one", "two"], [file], [talk])
    names = ["given prompt 1", "given prompt 2", f"prompt file {file}", f"conversation {talk}"]
    assert [one.name for one in found] == names
    assert [one.text for one in found] == ["one", "two", "from a file", ""]
    assert found[3].messages == (Message("user", "What is a window?"),)
    assert [one.words for one in found] == [1, 1, 3, 4]


def test_a_prompt_alone_has_no_number() -> None:
    assert [one.name for one in given(["one"], [], [])] == ["given prompt"]


def test_flags_take_the_place_of_all_prompts_of_the_run_file(tmp_path: Path) -> None:
    run = written(tmp_path, "prompt: [a, b]\nprompt-file: missing.txt\nchat: [x.json, y.json]\n", "run.yaml")
    settings = resolve({"config": run, "prompt": ["c", "d"]}, {"GEMMA_DOCTOR_PROMPT": "e"}, tmp_path)
    assert [one.text for one in settings.prompts] == ["c", "d"]
    settings = resolve({"config": run}, {"GEMMA_DOCTOR_PROMPT": "e, f"}, tmp_path)
    assert [one.text for one in settings.prompts] == ["e, f"]  # the environment has one, commas and all
    assert settings.origins["prompts"] == "environment"


def test_paths_of_prompts_are_seen_from_the_run_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    written(tmp_path / "in", SAID), written(tmp_path / "in", "b", "b.txt"), written(tmp_path / "in", "c", "c.txt")
    run = written(tmp_path / "in", "prompt: a\nprompt-file: [b.txt, c.txt]\nchat: talk.json\n", "run.yaml")
    assert len(resolve({"config": run}, {}, tmp_path).prompts) == 4


def test_one_prompt_at_most_comes_from_the_environment(tmp_path: Path) -> None:
    with pytest.raises(DoctorError, match="GEMMA_DOCTOR_PROMPT and GEMMA_DOCTOR_CHAT: one prompt at most"):
        resolve({}, {"GEMMA_DOCTOR_PROMPT": "a", "GEMMA_DOCTOR_CHAT": "b.json"}, tmp_path)


@pytest.mark.parametrize(
    ("texts", "files", "said"),
    [
        (["same", " same\n"], [], "given prompt 2: says the same as the given prompt 1"),
        (["in a file"], ["a.txt"], "says the same as the given prompt"),
        ([], ["a.txt", "a.txt"], "says the same as the prompt file"),
        ([], ["-", "-"], "two prompts are to be read from stdin"),
        ([], ["empty.txt"], "empty.txt: is empty"),
        ([], ["missing.txt"], "missing.txt: cannot be read (No such file or directory)"),
    ],
)
def test_prompts_that_are_refused(
    texts: list[str], files: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "in a file", "a.txt"), written(tmp_path, " \n", "empty.txt")
    with pytest.raises(DoctorError) as caught:
        given(texts, files, [])
    assert said in caught.value.message
    assert caught.value.hint and "\n" not in caught.value.message + caught.value.hint


# --- conversations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda said: said, lambda said: {"messages": said}])
def test_a_list_of_messages_or_a_mapping_that_holds_one(wrap: object, tmp_path: Path) -> None:
    messages = conversation(written(tmp_path, wrap(SAID)))  # type: ignore[operator]
    assert messages == (Message("user", "What is a window?"),)
    assert messages[0].served() == SAID[0]


def test_yaml_and_parts_stay_parts(tmp_path: Path) -> None:
    text = "messages:\n- {role: system, content: Be short.}\n- role: user\n  content: [{type: text, text: Why}]\n"
    system, user = conversation(written(tmp_path, text, "talk.yaml"))
    assert system == Message("system", "Be short.")
    assert user.served() == {"role": "user", "content": [{"type": "text", "text": "Why"}]}


def test_a_file_without_end_is_read_no_further_than_a_prompt_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gemma_doctor.prompt.LONGEST", 1000)
    for files, talks in (([written(tmp_path, "a" * 1001, "a.txt")], []), ([], ["/dev/zero"])):
        with pytest.raises(DoctorError, match="longer than 1,000 characters"):
            given([], files, talks)
    monkeypatch.setattr("gemma_doctor.prompt.LONGEST_YAML", 10)
    with pytest.raises(DoctorError, match="no JSON, and over 10"):
        conversation(written(tmp_path, "- {role: user, content: Why}", "talk.yaml"))


def test_a_mark_of_byte_order_is_no_part_of_a_text(tmp_path: Path) -> None:
    talk, file = written(tmp_path, "\ufeff" + json.dumps(SAID)), written(tmp_path, "\ufeffa", "a.txt")
    assert len(conversation(talk)) == 1
    assert given([], [file], [])[0].text == "a"


def test_a_conversation_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(SAID)))
    (prompt,) = given([], [], ["-"])
    assert (prompt.name, len(prompt.messages)) == ("conversation from stdin", 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"role', "not valid JSON"),
        ([], "holds no list of messages"),
        ("42", "holds no list of messages"),
        ({"mesages": SAID}, "unknown key 'mesages'; did you mean messages?"),
        (["hello"], "message 1: is no mapping"),
        (
            [{"role": "user", "content": "a", "contents": "b"}],
            "message 1: unknown key 'contents'; did you mean content?",
        ),
        ([*SAID, {"role": "model", "content": "a"}], "message 2: there is no role 'model'; did you mean assistant?"),
        ([{"role": "usr", "content": "a"}], "there is no role 'usr'; did you mean user?"),
        ([{"role": "x" * 999, "content": "a"}], "xxx ..."),
        ([{"content": "a"}], "there is no role None"),
        ([{"role": ["user"], "content": "a"}], "there is no role ['user']"),
        ([{"role": "user"}], "its content is no text"),
        ([{"role": "user", "content": 7}], "its content is no text"),
        ([{"role": "user", "content": " \n"}], "says nothing"),
        ([{"role": "user", "content": []}], "says nothing"),
        ([{"role": "user", "content": [{"type": "image", "url": "x"}]}], "a part of type 'image'"),
        ([{"role": "user", "content": [{"type": "text"}]}], "a part without a text"),
        ([{"role": "user", "content": [{"type": "text", "text": "a", "txt": ""}]}], "unknown key 'txt'"),
        ([*SAID, {"role": "assistant", "content": "A slice."}], "ends with an answer of the assistant"),
    ],
)
def test_conversations_that_are_none(content: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(DoctorError) as caught:
        conversation(written(tmp_path, content))
    assert said in caught.value.message
    assert caught.value.hint and "\n" not in caught.value.message + caught.value.hint
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("text", ["- {role: user, content: !!python/name:os.system }", "a: [", "- a: b\n c"])
def test_yaml_that_is_none_or_asks_for_objects(text: str, tmp_path: Path) -> None:
    with pytest.raises(DoctorError, match="not valid YAML"):
        conversation(written(tmp_path, text, "talk.yaml"))
