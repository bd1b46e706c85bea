"""What became of a report, or how two documents of facts differ: lines for people, or diff.schema.json for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from gemma_doctor.finding import counted
from gemma_doctor.report.escape import escape
from gemma_doctor.report.json import dumped
from gemma_doctor.report.lines import BLANK, Line, draw

if TYPE_CHECKING:
    from gemma_doctor.difference.changes import Change, Difference

SCHEMA_VERSION = 1
STYLES = {"WORSE": "bold red", "DIFFERENT": "bold red", "BETTER": "bold green", "THE SAME": "bold green"}
LISTS = {"worse": "red", "differs": "red", "better": "green", "changed": "cyan"}
REASONS = {
    "WORSE": "something got worse",
    "DIFFERENT": "the two do not agree",
    "BETTER": "nothing got worse",
    "CHANGED": "nothing got worse",
    "THE SAME": "nothing differs",
}


def document(difference: Difference) -> str:
    """JSON, pure ASCII, ending in a newline."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "document": "gemma-doctor diff",
        "verdict": difference.verdict,
        "exit_code": difference.exit_code,
        **asdict(difference),
    }
    return dumped(content)


def text(difference: Difference, width: int | None = None, color: bool = False) -> str:
    """Lines for people.

    Args:
        width: columns of the terminal, None for a pipe (no wrapping).
        color: write ANSI colour codes.
    """
    return draw(_lines(difference), width, color)


def _lines(difference: Difference) -> Iterator[Line]:
    reports = difference.of == "reports"
    if not difference.same_subject:
        yield Line("DIFFERENT SUBJECTS", "  what follows is about two models", style="bold magenta", indent=2)
    first, second = ("before", "after") if reports else ("first", "second")
    yield Line(f"{first:<6}  ", f"{difference.before}: {difference.before_is}".rstrip(": "), style="dim")
    yield Line(f"{second:<6}  ", f"{difference.after}: {difference.after_is}".rstrip(": "), style="dim")
    yield BLANK
    yield Line(difference.verdict, f": {_counts(difference)}", style=STYLES.get(difference.verdict, "bold"), indent=2)
    for name, style in LISTS.items():
        yield from _list(name, getattr(difference, name), style)
    if difference.not_compared:
        yield BLANK
        yield Line("not compared", style="dim")
        yield from (Line("  ", said) for said in difference.not_compared)
    yield BLANK
    yield Line(f"exit {difference.exit_code}", f" ({REASONS[difference.verdict]})", style="bold", indent=2)


def _counts(difference: Difference) -> str:
    """ "2 worse, 1 better, 3 changed; 51 checks in both"."""
    if difference.of == "facts":
        said = f"{counted(len(difference.differs), 'difference')} in {counted(difference.compared, 'value')}"
        return f"{said} that both name"
    lists = ", ".join(f"{len(getattr(difference, name))} {name}" for name in ("worse", "better", "changed"))
    return f"{lists}; {counted(difference.compared, 'check')} in both"


def _list(name: str, changes: Sequence[Change], style: str) -> Iterator[Line]:
    if not changes:
        return
    yield BLANK
    yield Line(name, style=f"bold {style}")
    for change in changes:
        values = f"{change.before or '-'} -> {change.after or '-'}"
        if not change.fingerprint:
            yield Line(f"  {escape(change.about)}  ", f"{change.what} {values}".lstrip(), style=style, indent=6)
            continue
        yield Line(f"  {escape(change.about)}  ", change.what, style=style, indent=6)
        yield Line("      ", values)
