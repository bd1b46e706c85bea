"""`gemma-doctor list`: all checks. (A module named list would hide the built-in one from this package.)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gemma_doctor.cli import options
from gemma_doctor.cli.output import aside, terminal_width, write
from gemma_doctor.cli.table import table
from gemma_doctor.report.escape import escape

if TYPE_CHECKING:  # its evidence needs numpy, and --help does not
    from gemma_doctor.check import Check


def needs(check: Check) -> str:
    """What a check needs, in words; what it can do without, in brackets."""
    from gemma_doctor.check import EVIDENCE_TYPES

    needed = dict.fromkeys(EVIDENCE_TYPES[need.type] for need in check.needs if not need.optional)
    useful = dict.fromkeys(EVIDENCE_TYPES[need.type] for need in check.needs if need.optional)
    more = ", ".join(word for word in useful if word not in needed)
    return " ".join(part for part in (", ".join(needed), f"[{more}]" if more else "") if part)


def available(checks_dir: options.Words, no_plugins: bool) -> tuple[Check, ...]:
    """All checks; what those of others print when they are imported goes to stderr.

    Raises:
        DoctorError: one of others cannot be used.
    """
    from gemma_doctor import registry

    with aside():
        return registry.available(checks_dir or (), plugins=not no_plugins)


def check_table(checks: Sequence[Check], width: int | None) -> str:
    """One line per check; with its source where there are checks of others."""
    from gemma_doctor.check import BUILT_IN

    head = ["check", "group", "source", "static", "needs", "what it looks at"]
    rows = [
        [one.id, one.group, escape(one.source), "static" if one.is_static else "-", needs(one), escape(one.title)]
        for one in checks
    ]
    if all(one.source == BUILT_IN for one in checks):
        for row in (head, *rows):
            del row[2]
    return table(head, rows, width)


def list_checks(checks_dir: options.ChecksDir = None, no_plugins: options.NoPlugins = False) -> None:
    """List all checks and what each needs, routes, and faults."""
    from gemma_doctor.fault_names import described
    from gemma_doctor.routes import all_routes

    width = terminal_width()
    text = check_table(available(checks_dir, no_plugins), width)
    ways = [(one.id, one.depth, one.condition) for one in all_routes().values()]
    write(
        f"{text}\nIn brackets: used where there is one. static: also runs in check --static.\n\n"
        f"{table(('route', 'depth', 'in use'), ways, width)}\n"
        "--routes says which are in use; without it those of depth quick. --depth says which are looked at.\n\n"
        f"{table(('fault of drill', 'caught by', 'what is done'), [*described()], width)}"
    )
