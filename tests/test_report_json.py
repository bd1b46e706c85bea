"""The JSON report: its schema, its stability, and that it holds only what JSON has."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import fields, replace
from pathlib import PurePosixPath
from typing import Any

import jsonschema
import numpy as np
import pytest
from fake_reports import ALL, HEALTHY, SICK, SKELETON, result, with_results

from gemma_doctor.finding import Finding, Outcome
from gemma_doctor.report.json import plain, render, schema

VALIDATOR = jsonschema.Draft202012Validator(schema())


def document(name: str = "sick") -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(render(ALL[name]))
    return loaded


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("name", ALL)
def test_every_report_fits_the_schema(name: str) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(document(name))] == []


@pytest.mark.parametrize("key", schema()["required"])
def test_the_schema_misses_what_is_left_out(key: str) -> None:
    incomplete = document()
    del incomplete[key]
    assert not VALIDATOR.is_valid(incomplete)


@pytest.mark.parametrize(
    ("key", "value"), [("verdict", "FINE"), ("exit_code", 3), ("schema_version", 2), ("surprise", 1), ("timing", None)]
)
def test_the_schema_refuses_what_is_wrong(key: str, value: object) -> None:
    assert not VALIDATOR.is_valid({**document(), key: value})


def test_a_finding_keeps_every_field() -> None:
    found = document()["results"][6]["findings"][0]
    assert set(found) == {one.name for one in fields(Finding)} | {"fingerprint"}
    assert found["severity"] == "error"
    assert found["where"]["layers"] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16]
    assert found["strip"]["observed"].startswith("!###")


def test_who_named_the_subject_stands_at_the_top() -> None:
    assert document("skeleton")["subject_source"] == "default"
    assert document("healthy")["subject_source"] == "argument"


def test_counts_agree_with_the_results() -> None:
    counts = document()["counts"]
    assert (counts["causes"], counts["consequences"], counts["warnings"], counts["notes"]) == (1, 1, 1, 1)
    assert counts["pass"] + counts["fail"] + counts["n/a"] + counts["skipped"] + counts["error"] == len(SICK.results)


def test_two_runs_differ_in_timing_alone() -> None:
    again = replace(SICK, timing={"total": 99.0, "phases": {"import": 1.0}})
    first, second = render(SICK), render(again)
    assert first != second
    assert render(SICK) == first
    assert {**json.loads(first), "timing": 0} == {**json.loads(second), "timing": 0}
    assert first.split('"timing"')[0] == second.split('"timing"')[0]


def test_a_set_has_one_order() -> None:
    names = [f"name-{number}" for number in range(50)]
    assert plain(set(names)) == sorted(names)


class Colour(str, enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, None),
        (-math.inf, None),
        (np.float32("inf"), None),
        (np.float64(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.array([[1.0, math.nan]]), [[1.0, None]]),
        ({512: (1, {"b"})}, {"512": [1, ["b"]]}),
        (PurePosixPath("a/b"), "a/b"),
        (Colour.RED, "red"),
        (None, None),
        (True, True),
    ],
)
def test_only_what_json_has(value: object, expected: object) -> None:
    shown = plain(value)
    assert shown == expected
    assert type(shown) is type(expected)
    json.dumps(shown, allow_nan=False)


def test_hostile_text_is_ascii_and_comes_back_as_it_was() -> None:
    evil = "\x1b[31m\x9b2J\u202e \ud800 \x00"
    text = render(replace(SKELETON, remarks=(evil,)))
    assert text.isascii()
    assert "\x1b" not in text
    assert json.loads(text)["remarks"] == [evil]


def test_figures_that_are_no_numbers_become_null() -> None:
    text = render(replace(HEALTHY, timing={"total": math.nan, "tokens_per_second": np.float32(7.5)}))
    assert json.loads(text)["timing"] == {"total": None, "tokens_per_second": 7.5}
    assert "NaN" not in text


def test_an_unexamined_check_has_no_sentence() -> None:
    report = with_results(HEALTHY, result("mask-dtype", "mask", Outcome.SKIPPED, said="no GPU"))
    one = next(item for item in json.loads(render(report))["results"] if item["check"] == "mask-dtype")
    assert (one["outcome"], one["examined"], one["reason"]) == ("skipped", None, "no GPU")
