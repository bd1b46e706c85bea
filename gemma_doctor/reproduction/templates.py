"""Scripts from the templates beside this file. What comes from a subject goes in as JSON or as cleaned words only."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import jinja2


def rendered(template: str, *, about: str, **values: Any) -> str:
    """A script.

    Args:
        template: its file.
        about: the first line of its documentation.
        values: what else the template takes.
    """
    return _environment().get_template(template).render(about=words(about), **values).strip() + "\n"


@cache
def _environment() -> jinja2.Environment:
    loader = jinja2.PackageLoader("gemma_doctor.reproduction", "")
    # not HTML: `words` and JSON keep what is filled in inside its literal
    return jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, autoescape=False)


def words(text: str) -> str:
    """A text that may stand in a docstring or comment: one line, ASCII, neither backslash nor double quote."""
    plain = re.sub(r"[^ -~]", "?", " ".join(text.split()))
    return plain.replace("\\", "/").replace('"', "'").strip()[:200]


def as_json(mapping: Mapping[str, Any]) -> str:
    """A mapping, one key a line, ASCII; fit for a raw string in triple quotes, since JSON escapes quotes in texts."""
    lines = (f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in mapping.items())
    return "{\n" + ",\n".join(lines) + "\n}"
