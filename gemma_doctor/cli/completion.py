"""What a shell completes: the words that an option or argument takes, known by its metavar.

A shell asks at every press of the tab key: nothing here imports checks, torch or transformers, and whatever goes wrong
means that there is nothing to complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import typer

from gemma_doctor.cli.output import aside

# zsh evaluates what it is given: only what needs no quoting is offered.
PLAIN = re.compile(r"[\w.,-]+", re.ASCII)

Completer = Callable[[typer.Context, str], list[str]]


def completer(metavar: str) -> Completer | None:
    """Completes what a parameter takes; None leaves it to the shell, which offers files.

    Args:
        metavar: of the parameter: "IDS", say, or the words themselves, as in "log|linear".
    """
    choices, listing = metavar.split("|"), _KNOWN.get(metavar)
    if listing is None and len(choices) == 1:
        return None
    several = metavar in ("IDS", "NAMES", "ROUTES")

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        before, comma, start = incomplete.rpartition(",") if several else ("", "", incomplete)
        try:
            with aside():
                words = [word for word in (listing(ctx) if listing else choices) if word.startswith(start)]
        except (Exception, SystemExit):
            return []
        return [word for word in (f"{before}{comma}{word}" for word in words) if PLAIN.fullmatch(word)]

    return complete


def _ids(context: Any) -> Iterable[str]:
    from gemma_doctor.registry import all_ids

    given = context.params
    return all_ids(given.get("checks_dir") or (), plugins=not given.get("no_plugins"))


def _ids_and_groups(context: Any) -> Iterable[str]:
    return (*_groups(context), *_ids(context))


def _groups(context: Any) -> Iterable[str]:
    from gemma_doctor.check import GROUPS

    return GROUPS


def _faults(context: Any) -> Iterable[str]:
    from gemma_doctor.fault_names import fault_names

    return fault_names()


def _presets(context: Any) -> Iterable[str]:
    from gemma_doctor import presets

    return presets.names()


def _routes(context: Any) -> Iterable[str]:
    from gemma_doctor.routes import all_routes

    return all_routes()


_KNOWN: dict[str, Callable[[Any], Iterable[str]]] = {
    "CHECK": _ids,
    "GROUP": _groups,
    "IDS": _ids_and_groups,
    "NAMES": _faults,
    "PRESET": _presets,
    "ROUTES": _routes,
    "SUBJECT": _presets,
}
