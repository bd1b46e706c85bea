"""The JSON Schema of the run file, for editors: every setting, with what it takes and what its flag's help says.

It is shipped as report/run-file.schema.json. After a change of settings, flags, routes or thresholds:

    python -m gemma_doctor.cli.run_file_schema > gemma_doctor/report/run-file.schema.json

A line `# yaml-language-server: $schema=PATH` at the top of a run file makes an editor use it. The table
[tool.gemma-doctor] of a pyproject.toml has the same keys. Checks of plug-ins are not known here and are let through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any

import typer

from gemma_doctor import registry, setting_values, suppression
from gemma_doctor.check import GROUPS
from gemma_doctor.cli.check import check
from gemma_doctor.report.formats import FORMATS
from gemma_doctor.routes import all_routes
from gemma_doctor.setting_values import NEVER, PARSERS, SEVERITIES, OneOf, Parser, Whole
from gemma_doctor.settings import ONLY_BY_CONFIG, Settings

Schema = dict[str, Any]

DRAFT = "http://json-schema.org/draft-07/schema#"  # which editors know best
SLUG: Schema = {"type": "string", "pattern": r"^[a-z0-9]+(-[a-z0-9]+)*$"}
TEXT: Schema = {"type": "string", "pattern": r"\S"}
# Of what no flag has: keys of the run file alone.
DESCRIPTIONS = {
    "overrides": "Keys laid over the published configuration of the text decoder; null is written as null.",
    "expect": "What the configuration must be, a preset or keys (and a preset): a mismatch is an error.",
    "suppress": "Findings that are known and do not count.",
    "severity": "What the findings of a check above a note count as.",
    "thresholds": "What a finding must exceed, by check; see gemma-doctor explain CHECK.",
}
SUPPRESSION = {
    "check": "Id of the check.",
    "reason": "Why its findings do not count.",
    "title": "Only findings whose title begins so.",
    "until": "The day from which on they count again, such as 2027-01-31.",
}


def run_file_schema() -> Schema:
    """The schema, made anew."""
    described = {**_help(), **DESCRIPTIONS}
    defaults = {one.name: one.default for one in fields(Settings) if one.default is not MISSING}
    return {
        "$schema": DRAFT,
        "title": "gemma-doctor run file",
        "description": "The long options of gemma-doctor check as keys, and what only a run file holds.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name.replace("_", "-"): _property(name, parser, described[name], defaults.get(name))
            for name, parser in PARSERS.items()
        },
        "definitions": {"check": _open_to_plugins([one.id for one in registry.built_in()])},
    }


def text() -> str:
    """The schema as the file that is shipped."""
    return json.dumps(run_file_schema(), indent=2, ensure_ascii=False) + "\n"


def _help() -> dict[str, str]:
    """What the command line says of each flag, without the default in brackets at its end."""
    app = typer.Typer(add_completion=False)
    app.command()(check)
    command: Any = typer.main.get_command(app)
    return {one.name: re.sub(r" \[[^\]]*\]$", "", one.help or "") for one in command.params}


def _property(name: str, parser: Parser, description: str, default: object) -> Schema:
    if name in ONLY_BY_CONFIG:
        description = f"{description} Only in a run file that is named (--config)."
    shown = {"default": default} if isinstance(default, (bool, int, str)) and not isinstance(default, tuple) else {}
    if name == "fail_on":
        shown = {"default": "error"}
    return {"description": description, **shown, **_shape(name, parser)}


def _shape(name: str, parser: Parser) -> Schema:
    if isinstance(parser, OneOf):
        return {"enum": [*parser.words]}
    if isinstance(parser, Whole):
        most = {} if parser.most is None else {"maximum": parser.most}
        return {"type": "integer", "minimum": parser.least, **most}
    if name in LISTS:
        return _one_or_several(LISTS[name]())
    return SHAPES[parser]()


def _open_to_plugins(known: Iterable[str]) -> Schema:
    """Completions for an editor; another name may be a plug-in's."""
    return {"anyOf": [{"enum": [*known]}, SLUG]}


def _checks_and_groups() -> Schema:
    return {"anyOf": [{"$ref": "#/definitions/check"}, {"enum": [*GROUPS]}]}


def _one_or_several(item: Schema) -> Schema:
    """A list, or one text (in which names may be separated by commas)."""
    return {"anyOf": [{"type": "array", "minItems": 1, "items": item}, TEXT]}


def _reports() -> Schema:
    """Formats to files, or texts as on the command line."""
    by_format = {"type": "object", "propertyNames": {"enum": [*FORMATS]}, "additionalProperties": TEXT}
    written = {"type": "string", "pattern": f"^({'|'.join(FORMATS)})=."}
    return {"anyOf": [by_format, written, {"type": "array", "minItems": 1, "items": written}]}


def _suppressions() -> Schema:
    entry = {key: {"description": SUPPRESSION[key], **TEXT} for key in suppression.KEYS}
    entry["check"] = {"description": SUPPRESSION["check"], "allOf": [{"$ref": "#/definitions/check"}]}
    entry["until"] = {**entry["until"], "format": "date", "pattern": r"^\d{4}-\d{2}-\d{2}$"}
    required = ["check", "reason"]
    item = {"type": "object", "additionalProperties": False, "required": required, "properties": entry}
    return {"type": "array", "items": item}


def _severities() -> Schema:
    return _by_check({one.id: {"enum": [*SEVERITIES]} for one in registry.built_in()}, {"enum": [*SEVERITIES]})


def _thresholds() -> Schema:
    number = {"type": "number", "minimum": 0}
    known: Mapping[str, Schema] = {
        one.id: {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: {**number, "default": value} for name, value in one.thresholds.items()},
        }
        for one in registry.built_in()
        if one.thresholds
    }
    none = {one.id: {"type": "object", "maxProperties": 0} for one in registry.built_in() if not one.thresholds}
    return _by_check({**known, **none}, {"type": "object", "additionalProperties": number})


def _by_check(known: Mapping[str, Schema], others: Schema) -> Schema:
    return {"type": "object", "propertyNames": SLUG, "properties": {**known}, "additionalProperties": others}


LISTS: Mapping[str, Callable[[], Schema]] = {
    "routes": lambda: {"enum": [*all_routes()]},
    **dict.fromkeys(("select", "ignore", "require"), _checks_and_groups),
    **dict.fromkeys(("prompt", "prompt_file", "chat", "checks_dir"), lambda: TEXT),
}
SHAPES: Mapping[Parser, Callable[[], Schema]] = {
    setting_values.text: lambda: TEXT,
    setting_values.destination: lambda: TEXT,
    setting_values.switch: lambda: {"type": "boolean"},
    setting_values.seconds: lambda: {"type": "number", "exclusiveMinimum": 0},
    setting_values.device: lambda: {"type": "string", "pattern": f"^({setting_values.DEVICE})$"},
    setting_values.severity: lambda: {"enum": [*SEVERITIES, NEVER]},
    setting_values.keys: lambda: {"type": "object"},
    setting_values.expectation: lambda: {"anyOf": [TEXT, {"type": "object"}]},
    setting_values.reports: _reports,
    setting_values.suppressions: _suppressions,
    setting_values.severities: _severities,
    setting_values.thresholds: _thresholds,
}

if __name__ == "__main__":
    print(text(), end="")
