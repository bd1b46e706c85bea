"""Each fault, put into a healthy skeleton: the right check is the only cause, and afterwards all is as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from gemma_doctor.capture.collector import Collector
from gemma_doctor.diagnose import chosen_checks, examine, triage
from gemma_doctor.faults import Fault, all_faults
from gemma_doctor.finding import CheckResult, Outcome, Severity
from gemma_doctor.loading import Patient
from gemma_doctor.settings import Settings

PatientOf = Callable[..., Patient]
# (preset, attention implementation): Gemma 2 has eager only in the newest release
PATIENTS = [
    ("gemma-2-2b", "eager"),
    ("gemma-3-1b-it", "sdpa"),
    ("gemma-4-E2B-it", "eager"),
    ("mistral-7b-v0.1", "sdpa"),
    *(
        pytest.param(*patient, marks=pytest.mark.slow)
        for patient in (("gemma-3-1b-it", "eager"), ("gemma-4-E2B-it", "sdpa"), ("mistral-7b-v0.1", "eager"))
    ),
]
SETTINGS = Settings(weights="skeleton")


def results_of(patient: Patient) -> tuple[CheckResult, ...]:
    checks = chosen_checks(SETTINGS)
    results, _ = examine(checks, Collector(patient, SETTINGS, lambda line: None))
    return triage(results, checks)


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


@pytest.mark.parametrize(("preset", "backend"), PATIENTS)
@pytest.mark.parametrize("fault", all_faults().values(), ids=all_faults())
def test_the_right_check_is_the_only_cause(patient_of: PatientOf, preset: str, backend: str, fault: Fault) -> None:
    patient = patient_of(preset, backend)
    if fault.why_not(patient):
        pytest.skip(fault.why_not(patient))
    before = fingerprint(patient)
    with fault.inject(patient):
        results = results_of(patient)
    assert causes(results) == {(fault.caught_by, fault.severity)}
    assert not [one for one in results if one.outcome is Outcome.ERROR]
    after = fingerprint(patient)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize(("preset", "backend"), PATIENTS)
def test_the_healthy_twin_has_no_finding(patient_of: PatientOf, preset: str, backend: str) -> None:
    results = results_of(patient_of(preset, backend))
    assert [finding for one in results for finding in one.findings] == []
    assert {one.outcome for one in results} <= {Outcome.PASS, Outcome.NOT_APPLICABLE}


def test_every_check_has_a_fault_that_only_it_catches() -> None:
    assert {fault.caught_by for fault in all_faults().values()} == {one.id for one in chosen_checks(SETTINGS)}
    assert all(fault.title.endswith(".") for fault in all_faults().values())
