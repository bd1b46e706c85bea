"""`gemma-doctor list`: all checks. (A module named list would hide the built-in one from this package.)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemma_doctor.cli.output import terminal_width, write
from gemma_doctor.cli.table import table

if TYPE_CHECKING:  # its evidence needs numpy, and --help does not
    from gemma_doctor.check import Check


def needs(check: Check) -> str:
    """What a check needs, in words; what it can do without, in brackets."""
    from gemma_doctor.check import EVIDENCE_TYPES

    needed = dict.fromkeys(EVIDENCE_TYPES[need.type] for need in check.needs if not need.optional)
    useful = dict.fromkeys(EVIDENCE_TYPES[need.type] for need in check.needs if need.optional)
    more = ", ".join(word for word in useful if word not in needed)
    return " ".join(part for part in (", ".join(needed), f"[{more}]" if more else "") if part)


def list_checks() -> None:
    """List all checks and what each needs, routes, and faults."""
    from gemma_doctor import registry
    from gemma_doctor.fault_names import described
    from gemma_doctor.routes import all_routes

    rows = [
        (one.id, one.group, "static" if one.is_static else "-", needs(one), one.title) for one in registry.built_in()
    ]
    width = terminal_width()
    text = table(("check", "group", "static", "needs", "what it looks at"), rows, width)
    ways = [(one.id, one.depth, one.condition) for one in all_routes().values()]
    write(
        f"{text}\nIn brackets: used where there is one. static: also runs in check --static.\n\n"
        f"{table(('route', 'depth', 'in use'), ways, width)}\n"
        "--routes says which are in use; without it those of depth quick. --depth says which are looked at.\n\n"
        f"{table(('fault of drill', 'caught by', 'what is done'), [*described()], width)}"
    )
