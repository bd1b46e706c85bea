"""Each fault, put into a healthy skeleton of each family: the right check is the only cause, and afterwards all is as
it was before.

The whole matrix takes half an hour; a plain run takes each fault in one family, and a few in others. The rest is
sampled by the slow tests, and run whole with GEMMA_DOCTOR_WHOLE_DRILL=1.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

import pytest

from benchmarks.drill import COMBINATIONS, ELSEWHERE, ROOT, twin_of
from gemma_doctor.capture.collector import Collector
from gemma_doctor.diagnosis import chosen_checks, conclude
from gemma_doctor.drill import HealthyTwin
from gemma_doctor.drilled import Drilled, Verdict
from gemma_doctor.errors import DoctorError
from gemma_doctor.examine import examine
from gemma_doctor.faults import WAITED_FOR, Fault, all_faults
from gemma_doctor.finding import Outcome, Severity
from gemma_doctor.loading import Patient
from gemma_doctor.registry import built_in
from gemma_doctor.routes import all_routes
from gemma_doctor.settings import Settings

WHOLE = bool(os.environ.get("GEMMA_DOCTOR_WHOLE_DRILL"))
FIRST = ("gemma3", "sdpa")
# Faults that FIRST cannot have, or that show something there that a family of another kind must show as well.
ALSO_AT_ONCE = {
    ("gemma2", "eager"): {"bool-mask-added"},
    ("gemma4", "eager"): {"rounded-without-cache", "stale-output-at-decode", "chunk-without-last-token"},
    ("gemma", "sdpa"): {"real-row-masked", "lookup-skips-mlp"},
}
TAKES_LONG = {"graph-per-step", "stale-constant-when-compiled", "half-precision-late-at-decode", "float16-overflow"}
ONE_OF = 16  # the slow tests take a sixteenth of the faults in each further combination
WHOLE_CHECK_OF_ONE_IN = 3  # and put every third into a whole check: CI has twenty minutes
# Routes that no patient here can be healthy on: tests/test_parity.py feeds their checks with evidence made by hand.
NOT_HERE = {
    "full-cache-parity": "no release that was measured gets it right",
    "flash-attention-parity": "needs flash-attn and a GPU",
    "flex-attention-parity": "flex compiles no decode step on a CPU",
    "offloaded-cache-parity": "needs a GPU to bring keys back from",
    "quantised-cache-parity": "needs optimum-quanto or hqq",
    "regression": "needs a baseline with figures of real weights: tests/test_baseline.py",
}
BY_NAME = {(family.name, backend): (family, backend) for family, backend in COMBINATIONS}
COVERED = {name: one for name, one in all_faults().items() if one.caught_by not in WAITED_FOR}


@cache
def twin(combination: tuple[str, str]) -> HealthyTwin:
    """Examined once; skipped in releases that do not know the family."""
    names = [name for name in COVERED if combination == FIRST or WHOLE or name not in TAKES_LONG]
    try:
        return twin_of(*BY_NAME[combination], names)
    except DoctorError as error:
        if " needs transformers >= " in error.message:
            pytest.skip(error.message)
        raise


def cases() -> list[object]:
    found = []
    for turn, combination in enumerate(BY_NAME):
        for number, name in enumerate(COVERED):
            first = combination == FIRST and name not in TAKES_LONG
            at_once = first or name in ALSO_AT_ONCE.get(combination, ())
            sampled = combination == FIRST or (number % ONE_OF == turn % ONE_OF and name not in TAKES_LONG)
            if at_once or sampled or WHOLE:
                marks = () if at_once else pytest.mark.slow
                found.append(pytest.param(combination, name, marks=marks, id=f"{name}-{'-'.join(combination)}"))
    return found


@pytest.mark.parametrize(("combination", "name"), cases())
def test_the_right_check_is_the_only_cause(combination: tuple[str, str], name: str) -> None:
    patient = twin(combination).patient
    with patient.threads():
        drilled = twin(combination).with_fault(all_faults()[name])
    if drilled.verdict is Verdict.NOT_APPLICABLE:
        pytest.skip(drilled.reason)
    assert drilled.verdict is Verdict.CAUGHT, said(drilled)


def said(one: Drilled) -> str:
    return f"{one.verdict.value}: {one.caught_by} expected, causes {one.causes}, consequences {one.consequences}"


@pytest.mark.parametrize(
    "combination",
    [one if one in (FIRST, *ALSO_AT_ONCE) else pytest.param(one, marks=pytest.mark.slow) for one in BY_NAME],
)
def test_the_healthy_twin_has_no_finding(combination: tuple[str, str]) -> None:
    """Notes are left: known-release says what the release has elsewhere."""
    assert [f"{one.check}: {one.title}" for one in twin(combination).findings] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", list(COVERED)[:: 1 if WHOLE else WHOLE_CHECK_OF_ONE_IN])
def test_a_whole_check_has_the_same_cause(patient_of: Callable[..., Patient], name: str) -> None:
    """The drill leaves passes out; `check` leaves out none, and says no less and no more."""
    one = all_faults()[name]
    patient = patient_of(BY_NAME[FIRST][0].preset, FIRST[1])
    if one.why_not(patient):
        pytest.skip(one.why_not(patient))
    with one.inject(patient):
        causes = causes_of_a_whole_check(patient, one)
    assert causes == {(one.caught_by, one.severity)}


def causes_of_a_whole_check(patient: Patient, one: Fault) -> set[tuple[str, Severity]]:
    quick = tuple(route.id for route in all_routes().values() if route.depth == "quick")
    settings = Settings(weights="skeleton", depth="quick", routes=(*quick, *one.routes))
    checks = chosen_checks(settings)
    collector = Collector(patient, settings, lambda line: None)
    with patient.threads():
        results, stopped = examine(checks, collector)
        results = conclude(results, checks, collector)
    assert stopped is None
    assert not [result for result in results if result.outcome is Outcome.ERROR]
    every = (finding for result in results for finding in result.findings)
    return {(item.check, item.severity) for item in every if item.severity > Severity.NOTE and not item.follows_from}


def test_every_check_has_a_fault() -> None:
    every = {one.id for one in built_in()}
    assert {fault.caught_by for fault in COVERED.values()} == every - NOT_HERE.keys()
    assert all(fault.title.endswith(".") for fault in all_faults().values())


def test_the_routes_of_a_fault_are_there() -> None:
    assert {name for fault in all_faults().values() for name in fault.routes} <= all_routes().keys()


def test_the_page_of_the_docs_knows_every_fault() -> None:
    """Its figures are measured by benchmarks/drill.py, in half an hour; what they are of must be all there is."""
    page = (ROOT / "docs" / "drill.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    told = {row[0].removeprefix("| "): row[2] for row in rows if len(row) == 4}
    told.pop("fault")
    told.pop("---", None)
    assert told == {name: one.caught_by for name, one in all_faults().items()}
    nowhere = {row[0].removeprefix("| ") for row in rows if row[-1].startswith("0 of")}
    assert nowhere == set()  # a fault that nobody can have proves nothing
    assert ELSEWHERE.keys() <= all_faults().keys()
