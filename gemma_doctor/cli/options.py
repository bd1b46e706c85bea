"""Flags that several commands have. Values stay texts here: settings.py reads flags, environment and run files."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemma_doctor.cli.completion import completer
from gemma_doctor.cli.output import say
from gemma_doctor.errors import DoctorError

if TYPE_CHECKING:
    from gemma_doctor.settings import Settings

Word = str | None
Words = list[str] | None


def option(metavar: str, help: str) -> Any:
    return typer.Option(metavar=metavar, help=help, show_default=False, autocompletion=completer(metavar))


def switch(names: str, help: str) -> Any:
    return typer.Option(*names.split(), help=help, show_default=False)


def choice(flag: str, value: Word, *words: str) -> str:
    """One of the words; the first where nothing was said.

    Raises:
        DoctorError: another word, with a suggestion.
    """
    from gemma_doctor import setting_values

    try:
        return str(setting_values.one_of(*words)(words[0] if value is None else value))
    except ValueError as error:
        raise DoctorError(f"{flag} {error}", "--help shows what it takes") from None


Subject = Annotated[
    Word,
    typer.Argument(
        metavar="SUBJECT",
        autocompletion=completer("SUBJECT"),
        show_default=False,
        help="A preset (see 'gemma-doctor presets'), a model's folder, a config.json, a .gguf file, an adapter's "
        "folder, a run file (.yaml) or a hub id. Without one: gemma-doctor.yaml or [tool.gemma-doctor] in "
        "pyproject.toml here, else gemma-3-270m.",
    ),
]
Config = Annotated[Word, option("FILE", "Run file: the long options of check as keys, plus subject and overrides.")]
Weights = Annotated[Word, option("auto|real|skeleton", "auto: the real ones if they are on this machine. [auto]")]
Offline = Annotated[bool, switch("--offline", "Never ask the hub: its local cache is all there is.")]
Revision = Annotated[Word, option("REV", "Branch, tag or commit of a hub id. [main]")]
Prompts = Annotated[Words, option("TEXT", "Prompt to examine; may be given several times.")]
PromptFiles = Annotated[Words, option("FILE", "File with a prompt, - is stdin; may be given several times.")]
Chats = Annotated[
    Words,
    option(
        "FILE",
        "Conversation, a list of {role, content} in JSON or YAML (- is stdin), written by the subject's own chat "
        "template and generated on as its own generation settings say; may be given several times.",
    ),
]
Device = Annotated[Word, option("auto|cpu|cuda|cuda:1|mps", "Where to run. [auto]")]
Dtype = Annotated[Word, option("auto|float32|bfloat16|float16", "Precision to examine in. [auto]")]
AttnImplementation = Annotated[Word, option("NAME", "Attention backend: eager, sdpa ... [the library's choice]")]
Seed = Annotated[Word, option("N", "Of random weights and tokens. [0]")]
Timeout = Annotated[Word, option("SECONDS", "End the run after this time, report what is known, exit 2.")]
Color = Annotated[Word, option("auto|always|never", "Colours on a terminal. [auto]")]
ChecksDir = Annotated[Words, option("DIR", "Folder with further checks; may be given several times.")]
NoPlugins = Annotated[bool, switch("--no-plugins", "Leave out the checks of other distributions.")]
Debug = Annotated[bool, switch("--debug", "Show the traceback of whatever ends the run.")]


def text_or_json(settings: Settings) -> str:
    """The format of a command that has no others. A run file's is meant for `check`.

    Raises:
        DoctorError: another one was asked for.
    """
    if settings.format in ("text", "json"):
        return settings.format
    if settings.origins.get("format") == "run file":
        return "text"
    raise DoctorError(f"--format is {settings.format!r}; it takes text or json here", "check has more of them")


@contextmanager
def ending(debug: bool) -> Iterator[None]:
    """Say how a command ended that did not get to say it itself; with its traceback, where that was asked for."""
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted, before anything was known")
        raise typer.Exit(130) from None
    except typer.Exit:
        raise
    except Exception:
        if debug:
            for line in traceback.format_exc().splitlines():
                say(line)
        raise
