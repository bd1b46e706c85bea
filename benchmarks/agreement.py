"""Compares what the doctor said with measured cells. Nothing here runs anything; measured_cells.py does."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

# Causes of the cells that are no fault: the library says that it does not do this.
REFUSALS = {"documented refusal", "refused (unsupported combination)"}
# An advisory that this run reproduced may stand for any sick cell.
ANY_SCENARIO = {"known-release"}
BACKEND = "backend"
REFUSED = "the library refuses"


@dataclass(frozen=True, order=True)
class Combination:
    release: str
    family: str
    backend: str

    def __str__(self) -> str:
        return f"{self.release:7} {self.family:12} {self.backend:5}"


@dataclass(frozen=True)
class Cell:
    """One row of the table; verdict is ok, DEV (silently differs), EXC (exception) or n/a."""

    scenario: str
    verdict: str
    note: str = ""
    cause: str = ""

    @property
    def is_sick(self) -> bool:
        return self.verdict in ("DEV", "EXC") and self.cause not in REFUSALS


@dataclass(frozen=True)
class Book:
    """measured_cells.yaml: subjects by family, checks by scenario, and reasons of disagreements."""

    subjects: Mapping[str, Mapping[str, Any]]
    scenarios: Mapping[str, Sequence[str]]
    reasons: Sequence[Mapping[str, Any]] = ()

    def checks(self, cells: Iterable[Cell]) -> set[str]:
        return {check for cell in cells for check in self.scenarios[cell.scenario]}

    def reason(self, of: Combination, kind: str, check: str) -> str:
        """Why the doctor and the cells part there in that way; "" if nothing is written."""
        place = {"releases": of.release, "families": of.family, "backends": of.backend, "checks": check}
        for entry in self.reasons:
            if entry["kind"] == kind and all(value in entry.get(key, [value]) for key, value in place.items()):
                return str(entry["why"])
        return ""


@dataclass(frozen=True)
class Visit:
    """What one run of the doctor said.

    Attributes:
        report: as JSON, None where it could not examine.
        stderr: its end.
        seconds: that it took.
        broke: it ended by a fault of its own, or did not end.
    """

    report: Mapping[str, Any] | None
    stderr: str = ""
    seconds: float = 0.0
    broke: bool = False

    @cached_property
    def errors(self) -> tuple[Mapping[str, Any], ...]:
        """Findings of severity error; a check that crashed counts as one."""
        found = []
        for result in self._results:
            found += [one for one in result["findings"] if one["severity"] == "error"]
            if result["outcome"] == "error":
                found.append({"check": result["check"], "title": result["reason"], "observed": "", "follows_from": ""})
        return tuple(found)

    @property
    def looked(self) -> set[str]:
        """Checks that compared something."""
        return {one["check"] for one in self._results if one["outcome"] in ("pass", "fail")}

    @property
    def refused(self) -> set[str]:
        """Checks whose route the library refuses, for some texts (pass) or for all (n/a)."""
        return {
            one["check"]
            for one in self._results
            if one["outcome"] in ("pass", "n/a")
            and any(finding["title"].startswith(REFUSED) for finding in one["findings"])
        }

    def outcome(self, check: str) -> str:
        for one in self._results:
            if one["check"] == check:
                return f"{one['outcome']}: {one['reason']}" if one["reason"] else str(one["outcome"])
        return "no such check"

    @property
    def _results(self) -> Sequence[Mapping[str, Any]]:
        return self.report["results"] if self.report else ()


@dataclass(frozen=True)
class Disagreement:
    """Where doctor and cells part. kind: verdict, missed, false alarm, refused or not examined."""

    of: Combination
    kind: str
    scenarios: tuple[str, ...]
    said: str
    reason: str = ""


@dataclass
class Comparison:
    """One combination, compared."""

    of: Combination
    sick: bool
    cells: int = 0
    disagreements: list[Disagreement] = field(default_factory=list)
    unlooked: dict[str, str] = field(default_factory=dict)
    errors: int = 0

    def count(self, kind: str) -> int:
        """Scenarios in disagreements of that kind."""
        return len({name for one in self.disagreements if one.kind == kind for name in one.scenarios})


# --- comparing -------------------------------------------------------------------------------------------------------


def compare(of: Combination, cells: Sequence[Cell], visit: Visit, book: Book) -> Comparison:
    """The doctor's report on one combination against its cells."""
    offered = [cell for cell in cells if cell.verdict != "n/a"]
    sick = [cell for cell in offered if cell.is_sick]
    result = Comparison(of, bool(sick), len(offered), errors=len(visit.errors))
    if visit.broke:
        result.disagreements.append(Disagreement(of, "not examined", ("*",), visit.stderr[-300:].strip()))
    elif not offered:
        if visit.report is not None:
            said = f"it examined what the cells could not build ({cells[0].note})"
            result.disagreements.append(Disagreement(of, "verdict", ("*",), said))
    elif visit.report is None or visit.report["environment"]["backend"] != of.backend:
        said = visit.stderr[-300:].strip() if visit.report is None else "it ran another attention backend"
        result.disagreements.append(Disagreement(of, "not examined", ("*",), said))
    else:
        result.disagreements += [*_false_alarms(of, offered, visit, book), *_missed(of, offered, visit, book)]
        result.disagreements += _verdict(of, sick, visit, result.disagreements)
        result.unlooked = {
            cell.scenario: f"{book.scenarios[cell.scenario][0]} {visit.outcome(book.scenarios[cell.scenario][0])}"
            for cell in offered
            if cell.verdict == "ok" and book.scenarios[cell.scenario][0] not in visit.looked
        }
    return result


def accounts(cells: Sequence[Cell], visit: Visit, book: Book, error: Mapping[str, Any]) -> bool:
    """Whether sick cells account for an error.

    They do if it is of a check that looks at their scenarios; if it follows from such an error, unless cells looked
    there themselves and found nothing; and if it is a difference from the reference where the whole backend is sick:
    cells are compared within their backend.
    """
    sick = [cell for cell in cells if cell.is_sick]
    if error["check"] in book.checks(sick) | (ANY_SCENARIO if sick else set()):
        return True
    if error.get("against") and any(cell.scenario == BACKEND for cell in sick):
        return True
    if error["check"] in book.checks(cells):
        return False
    causes = [one for one in visit.errors if one["check"] == error["follows_from"]]
    return any(accounts(cells, visit, book, one) for one in causes)


def _false_alarms(of: Combination, cells: Sequence[Cell], visit: Visit, book: Book) -> Iterator[Disagreement]:
    for one in visit.errors:
        if not accounts(cells, visit, book, one):
            where = tuple(cell.scenario for cell in cells if one["check"] in book.scenarios[cell.scenario])
            yield Disagreement(of, "false alarm", where, _in_words(one), book.reason(of, "false alarm", one["check"]))


def _missed(of: Combination, cells: Sequence[Cell], visit: Visit, book: Book) -> Iterator[Disagreement]:
    failing = {one["check"] for one in visit.errors}
    for cell in cells:
        wanted = book.scenarios[cell.scenario]
        if cell.is_sick and not failing & {*wanted, *ANY_SCENARIO}:
            looked = ", ".join(f"{check} {visit.outcome(check)}" for check in wanted)
            reason = book.reason(of, "missed", wanted[0])
            yield Disagreement(of, "missed", (cell.scenario,), f"{cell.cause}: {looked}", reason)
        elif cell.verdict == "ok" and wanted[0] in visit.refused:
            reason = book.reason(of, "refused", wanted[0])
            yield Disagreement(of, "refused", (cell.scenario,), f"{wanted[0]} refused; the cell ran", reason)


def _verdict(
    of: Combination, sick: Sequence[Cell], visit: Visit, others: Sequence[Disagreement]
) -> Iterator[Disagreement]:
    """Any error against any sick cell: explained where everything is that led to it."""
    if bool(sick) == bool(visit.errors):
        return
    kind = "missed" if sick else "false alarm"
    reasons = [one.reason for one in others if one.kind == kind]
    said = "none of the sick cells was found" if sick else f"{len(visit.errors)} errors where all cells are ok"
    yield Disagreement(of, "verdict", ("*",), said, reasons[0] if all(reasons) else "")


def _in_words(finding: Mapping[str, Any]) -> str:
    parts = [f"{finding['check']}: {finding['title']}", str(finding["observed"])[:160]]
    parts += [str((finding.get("where") or {}).get("boundary", "")), str(finding.get("effect", ""))]
    if finding["follows_from"]:
        parts.append(f"follows from {finding['follows_from']}")
    return "; ".join(part for part in parts if part)


# --- reading ---------------------------------------------------------------------------------------------------------


def read_cells(path: Path) -> dict[Combination, list[Cell]]:
    """The table by combination, in its order."""
    found: dict[Combination, list[Cell]] = {}
    with path.open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
            of = Combination(row["version"], row["family"], row["attn"])
            found.setdefault(of, []).append(Cell(row["scenario"], row["verdict"], row["note"], row["cause"]))
    return found


def read_book(path: Path) -> Book:
    """measured_cells.yaml, or another like it."""
    return Book(**yaml.safe_load(path.read_text(encoding="utf-8")))
