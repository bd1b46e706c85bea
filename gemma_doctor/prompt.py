"""Prompts that a run is given: texts, files of text, and conversations. No torch here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemma_doctor import run_file
from gemma_doctor.errors import DoctorError, suggest

ROLES = ("system", "developer", "user", "assistant", "tool")
# What roles are called elsewhere: Gemma's own templates write "model" where messages say "assistant".
OTHER_NAMES = {"model": "assistant", "bot": "assistant", "ai": "assistant", "gpt": "assistant", "human": "user"}
MESSAGE_KEYS = ("role", "content")
# Characters. The longest context of a model has some millions; YAML takes a minute for ten.
LONGEST, LONGEST_YAML = 16_000_000, 1_000_000
MESSAGE = "a message is {role: user, content: TEXT}"


@dataclass(frozen=True)
class Message:
    """One message of a conversation. Its content is a text, or the texts of its parts, as the file has it."""

    role: str
    content: str | tuple[str, ...]

    def served(self) -> dict[str, Any]:
        """As a chat template takes it."""
        if isinstance(self.content, str):
            return {"role": self.role, "content": self.content}
        return {"role": self.role, "content": [{"type": "text", "text": text} for text in self.content]}

    @property
    def texts(self) -> tuple[str, ...]:
        """Its texts, part by part."""
        return (self.content,) if isinstance(self.content, str) else self.content


@dataclass(frozen=True)
class Prompt:
    """One prompt.

    Attributes:
        name: for reports: "given prompt", "given prompt 2", "prompt file notes.txt", "conversation talk.yaml".
        text: what it says; "" of a conversation.
        messages: of a conversation; () of a plain text.
    """

    name: str
    text: str = ""
    messages: tuple[Message, ...] = ()

    @property
    def words(self) -> int:
        """How many words it has: what is left of its length where there is no vocabulary."""
        texts = (text for message in self.messages for text in message.texts) if self.messages else (self.text,)
        return sum(len(text.split()) for text in texts)


def given(texts: Sequence[str], files: Sequence[str], conversations: Sequence[str]) -> tuple[Prompt, ...]:
    """All prompts of a run: texts first, then files of text, then conversations, each in the order given.

    Args:
        files, conversations: paths; "-" is stdin, which can be read once.

    Raises:
        DoctorError: a file cannot be read, is empty or no conversation; or two prompts are the same.
    """
    if [*files, *conversations].count("-") > 1:
        raise DoctorError("two prompts are to be read from stdin", "give one of them as a file")
    numbers = [f" {index}" for index in range(1, len(texts) + 1)] if len(texts) > 1 else [""]
    prompts = [Prompt(f"given prompt{number}", text) for number, text in zip(numbers, texts, strict=False)]
    prompts += [Prompt(f"prompt file {_named(path)}", _read(path, "prompt file")) for path in files]
    prompts += [Prompt(f"conversation {_named(path)}", messages=conversation(path)) for path in conversations]
    seen: dict[tuple[object, ...], str] = {}
    for prompt in prompts:
        if not prompt.messages and not prompt.text.strip():
            raise DoctorError(f"{prompt.name}: is empty", "write a prompt into it")
        said = (prompt.text.strip(), prompt.messages)
        if said in seen:
            raise DoctorError(f"{prompt.name}: says the same as the {seen[said]}", "leave one of the two out")
        seen[said] = prompt.name
    return tuple(prompts)


def _named(path: str) -> str:
    return "from stdin" if path == "-" else path


def _read(path: str, what: str) -> str:
    """No more than is allowed: devices have no end. Pipes (`<(command)`) are files like others."""
    try:
        if path == "-":
            text = sys.stdin.read(LONGEST + 1).removeprefix("\ufeff")
        else:
            with Path(path).open(encoding="utf-8-sig") as file:  # some editors write a mark of byte order
                text = file.read(LONGEST + 1)
    except UnicodeDecodeError:
        raise DoctorError(f"{what} {path}: not a UTF-8 text", "save it as UTF-8") from None
    except OSError as error:
        raise DoctorError(f"{what} {path}: cannot be read ({error.strerror})", "name an existing file") from None
    if len(text) > LONGEST:
        raise DoctorError(f"{what} {_named(path)}: longer than {LONGEST:,} characters", "give a shorter one")
    return text


# --- conversations ---------------------------------------------------------------------------------------------------


def conversation(path: str) -> tuple[Message, ...]:
    """The messages of a JSON or YAML file: a list of them, or a mapping with the key messages.

    Raises:
        DoctorError: it cannot be read or parsed, is empty, or a message is none.
    """
    where = f"conversation {_named(path)}"
    content = _parsed(_read(path, "conversation"), where)
    if isinstance(content, Mapping):
        _known_keys(content, ("messages",), where, "write the messages under the key 'messages', or as a list")
        content = content.get("messages")
    if not isinstance(content, list) or not content:
        raise DoctorError(f"{where}: holds no list of messages", MESSAGE)
    messages = tuple(_message(one, f"{where}, message {index}") for index, one in enumerate(content, start=1))
    if messages[-1].role == "assistant":
        raise DoctorError(f"{where}: it ends with an answer of the assistant", "let it end with what is to be answered")
    return messages


def _parsed(text: str, where: str) -> Any:
    """JSON where it is some (YAML does not read all of it: surrogate pairs, tabs), else YAML."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if where.endswith(".json"):
            raise DoctorError(f"{where}: not valid JSON ({error})", "correct the messages") from None
        if len(text) > LONGEST_YAML:
            raise DoctorError(f"{where}: no JSON, and over {LONGEST_YAML:,} characters", "write it as JSON") from None
        return run_file.parse_yaml(text, where, "correct the messages: JSON or YAML")


def _message(written: Any, where: str) -> Message:
    if not isinstance(written, Mapping):
        raise DoctorError(f"{where}: is no mapping", MESSAGE)
    _known_keys(written, MESSAGE_KEYS, where, MESSAGE)
    role = written.get("role")
    if role not in ROLES:
        close = OTHER_NAMES.get(str(role).lower())
        hint = f"; did you mean {close}?" if close else suggest(str(role), ROLES)
        raise DoctorError(f"{where}: there is no role {_short(role)}{hint}", f"roles: {', '.join(ROLES)}")
    content = written.get("content")
    texts = (content,) if isinstance(content, str) else tuple(_parts(content, where))
    if not any(text.strip() for text in texts):
        raise DoctorError(f"{where}: says nothing", MESSAGE)
    return Message(role, content if isinstance(content, str) else texts)


def _parts(content: Any, where: str) -> Iterable[str]:
    if not isinstance(content, list):
        raise DoctorError(f"{where}: its content is no text", f"{MESSAGE}; or a list of {{type: text, text: TEXT}}")
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(part, Mapping) or kind != "text" or not isinstance(part.get("text"), str):
            what = f"of type {_short(kind)}" if isinstance(kind, str) and kind != "text" else "without a text"
            raise DoctorError(f"{where}: a part {what}", "parts are {type: text, text: TEXT}; images are not examined")
        _known_keys(part, ("type", "text"), where, "parts are {type: text, text: TEXT}")
        yield part["text"]


def _known_keys(mapping: Mapping[Any, Any], known: Sequence[str], where: str, hint: str) -> None:
    for key in mapping:
        if key not in known:
            raise DoctorError(f"{where}: unknown key {_short(key)}{suggest(str(key), known)}", hint)


def _short(value: object) -> str:
    said = repr(value)
    return said if len(said) <= 60 else f"{said[:60]} ..."
