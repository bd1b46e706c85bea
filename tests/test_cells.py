"""Holding the doctor against measured cells: what counts as agreement. Nothing is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.agreement import Book, Cell, Combination, Visit, compare, read_book, read_cells
from gemma_doctor import presets, registry
from gemma_doctor.checks.cache.assisted_parity import assisted_parity
from gemma_doctor.evidence import Crash, RouteCase
from gemma_doctor.testing import route_case, route_run, run_check

ROOT = Path(__file__).parent.parent
OF = Combination("5.12.0", "mistral", "eager")
BOOK = Book(
    subjects={"mistral": {"preset": "mistral-7b-v0.1"}},
    scenarios={
        "gen_default": ["cache-parity"],
        "gen_static": ["static-cache-parity"],
        "step_static": ["static-cache-parity"],
        "gen_assisted": ["assisted-parity"],
    },
)
HEALTHY = [Cell("gen_default", "ok"), Cell("gen_static", "ok"), Cell("step_static", "ok")]
SICK = [Cell("gen_default", "ok"), Cell("gen_static", "DEV", cause="a-fault"), Cell("step_static", "ok")]
CHECKS = ("cache-parity", "static-cache-parity", "assisted-parity", "known-release", "long-generate")


def error(check: str, follows_from: str = "") -> dict[str, Any]:
    return {"check": check, "severity": "error", "title": "t", "observed": "o", "follows_from": follows_from}


def visit(*findings: dict[str, Any], backend: str = "eager", checks: tuple[str, ...] = CHECKS) -> Visit:
    results = []
    for name in checks:
        own = [one for one in findings if one["check"] == name]
        outcome = "fail" if any(one["severity"] == "error" for one in own) else "pass"
        results.append({"check": name, "outcome": outcome, "reason": "", "findings": own})
    return Visit({"environment": {"backend": backend}, "results": results})


def kinds(cells: list[Cell], seen: Visit, book: Book = BOOK) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.kind, one.scenarios) for one in compare(OF, cells, seen, book).disagreements]


def test_no_error_and_no_sick_cell_agree() -> None:
    result = compare(OF, HEALTHY, visit(), BOOK)
    assert (result.disagreements, result.unlooked, result.sick, result.cells) == ([], {}, False, 3)


def test_a_sick_cell_agrees_with_an_error_of_its_check_which_also_looks_at_a_healthy_one() -> None:
    assert kinds(SICK, visit(error("static-cache-parity"))) == []


def test_an_advisory_that_was_reproduced_stands_for_a_sick_cell() -> None:
    assert kinds(SICK, visit(error("known-release"))) == []


def test_a_sick_cell_without_an_error_is_missed_as_a_scenario_and_as_a_verdict() -> None:
    assert kinds(SICK, visit()) == [("missed", ("gen_static",)), ("verdict", ("*",))]


def test_an_error_elsewhere_keeps_the_verdict_and_misses_the_scenario() -> None:
    assert kinds(SICK, visit(error("cache-parity"))) == [
        ("false alarm", ("gen_default",)),
        ("missed", ("gen_static",)),
    ]


def test_an_error_on_healthy_cells_is_a_false_alarm() -> None:
    expected = [("false alarm", ("gen_static", "step_static")), ("verdict", ("*",))]
    assert kinds(HEALTHY, visit(error("static-cache-parity"))) == expected


def test_an_error_of_a_check_that_no_scenario_names_is_one_too() -> None:
    assert kinds(HEALTHY, visit(error("long-generate"))) == [("false alarm", ()), ("verdict", ("*",))]


def test_a_consequence_of_a_sick_cell_is_accounted_for_where_no_cell_looked() -> None:
    cause, consequence = error("static-cache-parity"), error("long-generate", follows_from="static-cache-parity")
    assert kinds(SICK, visit(cause, consequence)) == []
    assert kinds(HEALTHY, visit(cause, consequence))[1] == ("false alarm", ())


def test_a_consequence_where_the_cell_is_healthy_is_a_false_alarm() -> None:
    seen = visit(error("static-cache-parity"), error("cache-parity", follows_from="static-cache-parity"))
    assert kinds(SICK, seen) == [("false alarm", ("gen_default",))]


def test_a_sick_backend_accounts_for_every_difference_and_for_no_crash() -> None:
    book = Book(BOOK.subjects, {**BOOK.scenarios, "backend": ["uncached-parity"]})
    cells = [Cell("backend", "DEV", cause="a-fault"), *HEALTHY]
    different = {**error("cache-parity"), "against": "reference"}
    checks = (*CHECKS, "uncached-parity")
    assert kinds(cells, visit(error("uncached-parity"), different, checks=checks), book) == []
    crash = visit(error("uncached-parity"), error("cache-parity"), checks=checks)
    assert kinds(cells, crash, book) == [("false alarm", ("gen_default",))]


@pytest.mark.parametrize("cause", ["documented refusal", "refused (unsupported combination)"])
def test_what_the_library_refuses_is_not_sick(cause: str) -> None:
    assert kinds([Cell("gen_assisted", "EXC", cause=cause)], visit()) == []


REFUSAL = route_case(crash=Crash("ValueError", "assisted generation is not supported", 0, 0, None, refused=True))


@pytest.mark.parametrize("cases", [(REFUSAL,), (REFUSAL, route_case(0.0))], ids=["each time", "once"])
def test_a_refusal_where_the_cell_ran_is_a_disagreement(cases: tuple[RouteCase, ...]) -> None:
    said = run_check(assisted_parity, route=route_run(*cases, route="assisted"))
    findings = [{"check": said.check, "severity": one.severity.word, "title": one.title} for one in said.findings]
    result = {"check": said.check, "outcome": said.outcome.value, "reason": said.reason, "findings": findings}
    seen = Visit({"environment": {"backend": OF.backend}, "results": [result]})
    assert kinds([Cell("gen_assisted", "ok")], seen) == [("refused", ("gen_assisted",))]
    assert kinds([Cell("gen_assisted", "EXC", cause="documented refusal")], seen) == []


def test_a_healthy_cell_that_nothing_looked_at_is_counted() -> None:
    result = compare(OF, HEALTHY, visit(checks=("static-cache-parity",)), BOOK)
    assert result.unlooked == {"gen_default": "cache-parity no such check"}
    assert result.disagreements == []


def test_what_cannot_be_built_agrees_only_if_the_doctor_says_so() -> None:
    cells = [Cell("*", "n/a", note="no attribute")]
    assert kinds(cells, Visit(None, "needs transformers >= 5.5")) == []
    assert kinds(cells, Visit(None, "internal error", broke=True)) == [("not examined", ("*",))]
    assert kinds(cells, visit()) == [("verdict", ("*",))]


@pytest.mark.parametrize("seen", [Visit(None, "no"), visit(backend="sdpa")])
def test_cells_that_the_doctor_did_not_examine_disagree(seen: Visit) -> None:
    assert kinds(HEALTHY, seen) == [("not examined", ("*",))]


def test_a_crashed_check_is_an_error() -> None:
    seen = visit()
    assert seen.report is not None
    seen.report["results"][0] |= {"outcome": "error", "reason": "the check crashed"}
    assert kinds(HEALTHY, seen) == [("false alarm", ("gen_default",)), ("verdict", ("*",))]


def test_a_reason_explains_its_own_place_only() -> None:
    entry = {
        "kind": "false alarm",
        "releases": ["5.12.0"],
        "checks": ["static-cache-parity"],
        "why": "the cells did not look there",
    }
    book = Book(BOOK.subjects, BOOK.scenarios, [entry])
    said = compare(OF, HEALTHY, visit(error("static-cache-parity")), book).disagreements
    assert [(one.kind, one.reason) for one in said] == [
        ("false alarm", "the cells did not look there"),
        ("verdict", "the cells did not look there"),
    ]
    both = visit(error("static-cache-parity"), error("cache-parity"))
    assert [one.reason for one in compare(OF, HEALTHY, both, book).disagreements].count("") == 2
    assert [one.reason for one in compare(OF, SICK, visit(), book).disagreements] == ["", ""]
    assert book.reason(Combination("5.0.0", "mistral", "eager"), "false alarm", "static-cache-parity") == ""


def test_the_table_is_read_by_combination(tmp_path: Path) -> None:
    path = tmp_path / "cells.tsv"
    path.write_text(
        "version\tfamily\tattn\tscenario\tverdict\tvalue\tnote\tcause\n"
        '5.12.0\tmistral\teager\tgen_default\tok\t1e-6\ta "note\t\n'
        "5.12.0\tmistral\tsdpa\tgen_static\tDEV\t0.9\t\ta-fault\n",
        encoding="utf-8",
    )
    assert read_cells(path) == {
        OF: [Cell("gen_default", "ok", 'a "note')],
        Combination("5.12.0", "mistral", "sdpa"): [Cell("gen_static", "DEV", cause="a-fault")],
    }


def test_the_book_names_presets_and_checks_that_exist() -> None:
    book = read_book(ROOT / "benchmarks" / "measured_cells.yaml")
    assert {entry["preset"] for entry in book.subjects.values()} <= set(presets.names())
    known = {one.id for one in registry.built_in()}
    for entry in book.subjects.values():
        assert set(entry.get("without", ())) <= set(presets.load(entry["preset"]))
    assert {check for wanted in book.scenarios.values() for check in wanted} <= known
    for entry in book.reasons:
        assert entry["why"] and set(entry) <= {"kind", "releases", "families", "backends", "checks", "why"}
        assert entry["kind"] in ("false alarm", "missed", "refused")
        assert set(entry["checks"]) <= known
