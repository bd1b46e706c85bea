"""Each fault, put into a healthy skeleton: the right check is the only cause, and afterwards all is as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from gemma_doctor.capture.collector import Collector
from gemma_doctor.diagnose import chosen_checks, conclude
from gemma_doctor.examine import examine
from gemma_doctor.faults import Fault, all_faults
from gemma_doctor.finding import CheckResult, Outcome, Severity
from gemma_doctor.loading import Patient
from gemma_doctor.registry import built_in
from gemma_doctor.routes import all_routes, included
from gemma_doctor.settings import Settings

PatientOf = Callable[..., Patient]
# (preset, attention implementation): Gemma 2 has eager only in the newest release
FIRST = ("gemma-3-1b-it", "sdpa")
PATIENTS = [
    FIRST,
    ("gemma-2-2b", "eager"),
    ("gemma-4-E2B-it", "eager"),
    ("mistral-7b-v0.1", "sdpa"),
    ("gemma-3-1b-it", "eager"),
    ("gemma-4-E2B-it", "sdpa"),
    ("mistral-7b-v0.1", "eager"),
]
# Faults that FIRST cannot have, or that a family must show whose layers share keys and values.
ALSO_AT_ONCE = {
    ("gemma-2-2b", "eager"): {"bool-mask-added"},
    ("gemma-4-E2B-it", "eager"): {"rounded-without-cache", "stale-output-at-decode", "chunk-without-last-token"},
}
TAKES_LONG = {"stale-constant-when-compiled"}
# Routes that no patient here can be healthy on: tests/test_parity.py feeds their checks with evidence made by hand.
NOT_HERE = {
    "full-cache-parity": "no release that was measured gets it right",
    "flash-attention-parity": "needs flash-attn and a GPU",
    "flex-attention-parity": "flex compiles no decode step on a CPU",
    "offloaded-cache-parity": "needs a GPU to bring keys back from",
    "quantised-cache-parity": "needs optimum-quanto or hqq",
}
QUICK = tuple(sorted(included("quick")))


def settings_for(fault: Fault | None) -> Settings:
    """The routes in everyone's use, and those that the fault shows on; a window's edge is crossed by a few tokens."""
    routes = (*QUICK, *(fault.routes if fault else ()))
    return Settings(weights="skeleton", depth="quick", routes=routes, margin=16)


def results_of(patient: Patient, settings: Settings) -> tuple[CheckResult, ...]:
    checks = chosen_checks(settings)
    collector = Collector(patient, settings, lambda line: None)
    results, _ = examine(checks, collector)
    return conclude(results, checks, collector)


def causes(results: tuple[CheckResult, ...]) -> set[tuple[str, Severity]]:
    """Checks with an error or a warning that follows from no other."""
    return {
        (one.check, finding.severity)
        for one in results
        for finding in one.findings
        if finding.severity > Severity.NOTE and not finding.follows_from
    }


def fingerprint(patient: Patient) -> list[torch.Tensor]:
    """Logits of every model for a fixed prompt, below and above the reduced window."""
    ids = torch.arange(10, 90)[None]
    with torch.inference_mode():
        return [model(ids).logits for model in patient.models]


def cases() -> list[object]:
    """Every fault in FIRST; in the others a few more at once, and of the rest each in one of them by turns (slow)."""
    found = []
    for turn, patient in enumerate(PATIENTS):
        for number, (name, one) in enumerate(all_faults().items()):
            at_once = (patient == FIRST and name not in TAKES_LONG) or name in ALSO_AT_ONCE.get(patient, ())
            if not at_once and patient != FIRST and number % (len(PATIENTS) - 1) != turn - 1:
                continue
            marks = () if at_once else pytest.mark.slow
            found.append(pytest.param(*patient, one, marks=marks, id=f"{name}-{'-'.join(patient)}"))
    return found


@pytest.mark.parametrize(("preset", "backend", "fault"), cases())
def test_the_right_check_is_the_only_cause(patient_of: PatientOf, preset: str, backend: str, fault: Fault) -> None:
    patient = patient_of(preset, backend)
    if fault.why_not(patient):
        pytest.skip(fault.why_not(patient))
    before = fingerprint(patient)
    with fault.inject(patient):
        results = results_of(patient, settings_for(fault))
    # what older releases have of their own is not the fault that was put in
    found = {one for one in causes(results) if one != ("known-release", Severity.WARNING)}
    assert (causes(results) if fault.caught_by == "known-release" else found) == {(fault.caught_by, fault.severity)}
    assert not [one for one in results if one.outcome is Outcome.ERROR]
    after = fingerprint(patient)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("preset", "backend"),
    [patient if patient in PATIENTS[:4] else pytest.param(*patient, marks=pytest.mark.slow) for patient in PATIENTS],
)
def test_the_healthy_twin_has_no_finding(patient_of: PatientOf, preset: str, backend: str) -> None:
    results = results_of(patient_of(preset, backend), settings_for(None))
    # notes are left: known-release says what the release has elsewhere
    assert causes(results) == set()
    assert {one.outcome for one in results} <= {Outcome.PASS, Outcome.NOT_APPLICABLE}


def test_every_check_has_a_fault_that_only_it_catches() -> None:
    every = {one.id for one in built_in()}
    assert {fault.caught_by for fault in all_faults().values()} == every - NOT_HERE.keys()
    assert all(fault.title.endswith(".") for fault in all_faults().values())


def test_the_routes_of_a_fault_are_there() -> None:
    assert {name for fault in all_faults().values() for name in fault.routes} <= all_routes().keys()
