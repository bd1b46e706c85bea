"""What is nobody else's business, taken out of texts that leave the machine: a bug report goes to strangers.

Two ways, and the first is the stronger one. What is known to be private is never put in: prompts are replaced *before*
anything is run (`stand_ins`), so that no finding can quote them, and of a configuration only what decides attention is
kept (`technical`). What may have come along unseen is then taken out of every text (`Redactor`): paths, names of the
user and the machine, secrets.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gemma_doctor.prompt import Message, Prompt
from gemma_doctor.prompts import english

PATH, USER, HOST, SECRET, ADDRESS = "<path>", "<user>", "<host>", "<secret>", "<address>"
CHARACTERS = 6  # of a word of English with its space; more than enough are taken
SHORTEST_SECRET = 8
# Accounts and machines of nobody in particular; as words they stand in ordinary sentences too.
NOBODY = frozenset(("root", "user", "admin", "ubuntu", "runner", "runneradmin", "home", "localhost", "docker", "app"))
SECRET_VARIABLE = re.compile(r"TOKEN|KEY|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE|_PAT$|_PWD$", re.IGNORECASE)
PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<=://)[^\s/@'\"]+@"), f"{SECRET}@"),  # name and password in a URL
    (re.compile(r"(?<=[?&])([\w.-]*(?:token|key|secret|sig|signature|auth)[\w.-]*=)[^&\s'\"#]+", re.I), rf"\1{SECRET}"),
    (re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{6,}", re.I), rf"\1 {SECRET}"),
    # how the usual services write theirs, and JSON web tokens
    (
        re.compile(r"\b(?:hf|api_org|gh[opsur]|github_pat|glpat|xox[abprs]|sk|pk|rk|npm|pypi|dop_v1)[_-][\w-]{8,}"),
        SECRET,
    ),
    (re.compile(r"\bAKIA[0-9A-Z]{12,}|\bAIza[\w-]{20,}|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"), SECRET),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), ADDRESS),
)
# Everything up to the quote where a path stands in quotes, so that spaces in it hide nothing; else up to a space.
QUOTED_PATHS = (
    re.compile(r"(?P<open>['\"`])(?:file://)?(?:~[\w.-]*)?/[^'\"`\n]*(?P=open)"),
    re.compile(r"(?P<open>['\"`])(?:[A-Za-z]:[\\/]|\\\\)[^'\"`\n]*(?P=open)"),
)
BARE_PATHS = (
    re.compile(r"file://[^\s'\"`<>|]+"),
    re.compile(r"(?<![\w./:<~-])~[\w.-]*/[^\s'\"`<>|,;:)\]]*"),
    re.compile(r"(?<![\w./:<~-])/(?:[^\s/'\"`<>|,;:)\]]+/)*[^\s/'\"`<>|,;:)\]]*[^\s/'\"`<>|,;:.)\]]"),
    re.compile(r"(?<!\w)[A-Za-z]:[\\/](?![\\/\s])[^\s'\"`<>|,;)\]]+"),
    re.compile(r"(?<![\w\\])\\\\\w[^\s'\"`<>|,;)\]]+"),
)
# Keys of a configuration whose texts are words of the library, never somebody's own.
TECHNICAL_KEY = re.compile(
    r"(?:^|_)(?:types?|act|activation|act_fn|dtype|method|implementation|mlp_type|topk_method|scoring_func)$"
)
TECHNICAL_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}|\d{1,4}")  # a number is the index of a layer


def stand_ins(prompts: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """Prompts of the same number, kinds, roles and lengths in words, with the docstrings of Python for their text.

    Their names are numbered, and name no file.
    """
    used, made = 0, list[Prompt]()
    for number, prompt in enumerate(prompts, start=1):

        def other(text: str) -> str:
            nonlocal used
            start, used = used, used + len(text.split())
            return words_of_english(start, used)

        kind = next((one for one in ("prompt file", "conversation") if prompt.name.startswith(one)), "given prompt")
        name = f"{kind} {number} (stand-in)"
        messages = tuple(Message(one.role, _content(one.content, other)) for one in prompt.messages)
        made.append(replace(prompt, name=name, text=other(prompt.text), messages=messages))
    return tuple(made)


def _content(content: str | tuple[str, ...], other: Callable[[str], str]) -> str | tuple[str, ...]:
    return other(content) if isinstance(content, str) else tuple(other(one) for one in content)


def words_of_english(start: int, end: int) -> str:
    """Some words of the text that nobody wrote for this model."""
    return " ".join(english(2 * CHARACTERS * (end + 1)).split()[start:end])


def technical(value: Any, key: str = "") -> Any:
    """Of a configuration what decides attention: numbers, switches, and the library's own words.

    Other texts (paths, names, templates, labels) are left out, and keys that are no identifiers.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return value if TECHNICAL_KEY.search(key) and TECHNICAL_WORD.fullmatch(value) else None
    if isinstance(value, Mapping):
        kept = {name: technical(one, name) for name, one in value.items() if IDENTIFIER.fullmatch(str(name))}
        return {name: one for name, one in kept.items() if one is not None or value[name] is None}
    if isinstance(value, (list, tuple)):
        kept_items = [technical(one, key) for one in value]
        return kept_items if all(one is not None for one in kept_items) else None
    return None


@dataclass(frozen=True)
class Redactor:
    """Takes what is private out of a text.

    Attributes:
        secrets: values that are replaced wherever they stand, longest first.
        folders: paths that are known, longest first; what hangs on one goes with it.
        words: names, and what is put in their place where they stand alone.
        paths: leave paths in.
    """

    secrets: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    words: tuple[tuple[str, str], ...] = ()
    paths: bool = False

    def __call__(self, text: str) -> str:
        """The text without them."""
        for value in self.secrets:
            text = text.replace(value, SECRET)
        for pattern, instead in PATTERNS:
            text = pattern.sub(instead, text)
        text = text if self.paths else self._without_paths(text)
        for word, instead in self.words:
            text = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", instead, text, flags=re.IGNORECASE)
        return text

    def _without_paths(self, text: str) -> str:
        for pattern in QUOTED_PATHS:
            text = pattern.sub(rf"\g<open>{PATH}\g<open>", text)
        for folder in self.folders:
            text = re.sub(rf"{re.escape(folder)}(?![\w-])[^\s'\"`<>|,;:)\]]*", PATH, text)
        for pattern in BARE_PATHS:
            text = pattern.sub(PATH, text)
        return text

    def all(self, value: Any) -> Any:
        """A value of JSON with every text in it redacted, keys as well."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {self(str(key)): self.all(one) for key, one in value.items()}
        return [self.all(one) for one in value] if isinstance(value, (list, tuple)) else value


def redactor(private_paths: Iterable[str] = (), *, paths: bool = False) -> Redactor:
    """What is private on this machine, for this user.

    Args:
        private_paths: of this run: its subject, run file, prompt files.
        paths: leave paths in. Secrets, and the names of user and machine, are taken out in any case.
    """
    secrets = {
        value for name, value in os.environ.items() if SECRET_VARIABLE.search(name) and len(value) >= SHORTEST_SECRET
    }
    folders = {one for path in (*private_paths, *_folders()) for one in _spellings(path)}
    names = [(name, PATH) for name in _bare_names(private_paths)] if not paths else []
    return Redactor(_longest_first(secrets), _longest_first(folders), (*names, *_names()), paths)


def _longest_first(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(texts, key=lambda one: (-len(one), one)))


def _bare_names(private_paths: Iterable[str]) -> tuple[str, ...]:
    """What files and folders of the run are called, where that is no ordinary word: it may stand without its folder."""
    parts = {part for path in private_paths for part in re.split(r"[\\/]+", path)}
    return _longest_first(part for part in parts if len(part) > 3 and not re.fullmatch(r"[a-z]+|\W*", part))


def _folders() -> list[str]:
    return [str(Path.home()), str(Path.cwd()), tempfile.gettempdir()]


def _spellings(path: str) -> list[str]:
    """A path as written, whole, from here and from home, and as Python and JSON quote it; no bare word, no root."""
    found = {path, str(Path(path).expanduser())}
    with contextlib.suppress(OSError, RuntimeError):
        found.add(str(Path(path).expanduser().resolve()))
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # another drive
        found |= {os.path.relpath(Path(path).expanduser().resolve(), start) for start in (Path.cwd(), Path.home())}
    separated = [one for one in found if len(one) > 3 and ("/" in one or "\\" in one)]
    return [*separated, *(one.replace("\\", "\\\\") for one in separated if "\\" in one)]


def _names() -> Iterable[tuple[str, str]]:
    users = {Path.home().name, *(os.environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER"))}
    with contextlib.suppress(OSError, KeyError, ImportError):  # no such account, as in containers
        users.add(getpass.getuser())
    hosts = {platform.node(), platform.node().split(".")[0], os.environ.get("HOSTNAME", "")}
    for names, instead in ((users, USER), (hosts, HOST)):
        for name in sorted(names, key=lambda one: (-len(one), one)):
            if len(name) > 2 and name.lower() not in NOBODY:
                yield name, instead
