"""`check --show-config`: what each setting is, and who said so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gemma_doctor.cli.output import terminal_width
from gemma_doctor.cli.table import table
from gemma_doctor.finding import Severity
from gemma_doctor.prompt import Prompt
from gemma_doctor.report.escape import escape
from gemma_doctor.settings import PREFIX

if TYPE_CHECKING:
    from gemma_doctor.settings import Settings

LONGEST = 200  # characters of a value


def render(settings: Settings) -> str:
    """One row a setting, by the name that flags and run files have for it."""
    rows = [
        (name.replace("_", "-"), _who(name, origin, settings), _in_words(name, settings))
        for name, origin in settings.origins.items()
    ]
    return table(("setting", "from", "value"), [tuple(map(escape, row)) for row in rows], terminal_width())


def _who(name: str, origin: str, settings: Settings) -> str:
    """ "--seed", "GEMMA_DOCTOR_SEED", "run file ./gate.yaml", "default"."""
    if origin == "flag":
        return {"subject": "SUBJECT", "prompts": "flags"}.get(name, f"--{name.replace('_', '-')}")
    if origin == "environment":
        return PREFIX + (name.upper() if name != "prompts" else "PROMPT ...")
    return f"run file {settings.run_file}" if origin == "run file" else origin


def _in_words(name: str, settings: Settings) -> str:
    value = getattr(settings, name)
    if name == "fail_on":
        return value.word if value is not None else "never"
    said = _plain(value)
    return said if len(said) <= LONGEST else f"{said[:LONGEST]} ..."


def _plain(value: object) -> str:
    if value is None or value == () or value == {}:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Severity):
        return value.word
    if isinstance(value, Prompt):
        return value.name
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_plain(one)}" for key, one in value.items())
    if isinstance(value, tuple):
        return "; ".join(map(_plain, value))
    return str(value)
