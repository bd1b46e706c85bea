"""Faults of tokens and of what ends a generation, on a whole small model with a tokenizer and a chat template."""

from __future__ import annotations

import pytest
from packaging.version import Version

from gemma_doctor import compat
from gemma_doctor.capture.collector import Collector
from gemma_doctor.diagnosis import chosen_checks, conclude
from gemma_doctor.drill import HealthyTwin
from gemma_doctor.drilled import Verdict
from gemma_doctor.examine import examine
from gemma_doctor.faults import all_faults
from gemma_doctor.finding import CheckResult, Outcome, Severity
from gemma_doctor.loading import Patient, admit
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve
from tests.tiny_model import tiny_folder

FAULTS = (
    "bos-missing",
    "bos-doubled",
    "pad-id-wrong",
    "texts-cut-short",
    "words-shattered",
    "special-token-split",
    "attention-mask-not-returned",
    "padding-side-flipped",
    "right-padding",
    "never-stops",
    "eos-of-another-generation",
)
pytestmark = pytest.mark.skipif(
    Version(compat.release()) < Version("4.53"), reason="the release reads no layer_types, so the model is another one"
)
OF_TEXT = ("bos-token", "pad-token", "padding-mask", "padding-side", "tokenizer-integrity", "truncation", "stop-tokens")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tiny_folder(tmp_path_factory.mktemp("tiny"))
    return Settings(subject=str(folder), weights="real", depth="quick", margin=4)


@pytest.fixture(scope="module")
def patient(settings: Settings) -> Patient:
    return admit(resolve(settings), settings, lambda line: None)


@pytest.fixture(scope="module")
def twin(patient: Patient, settings: Settings) -> HealthyTwin:
    return HealthyTwin(patient, settings, [all_faults()[name] for name in FAULTS])


def results_of(patient: Patient, settings: Settings) -> dict[str, CheckResult]:
    checks = chosen_checks(settings)
    collector = Collector(patient, settings, lambda line: None)
    results, _ = examine(checks, collector)
    return {one.check: one for one in conclude(results, checks, collector)}


def test_the_small_model_is_healthy(patient: Patient, settings: Settings) -> None:
    results = results_of(patient, settings)
    found = [item for one in results.values() for item in one.findings if item.severity > Severity.NOTE]
    assert [f"{one.check}: {one.title} ({one.observed})" for one in found] == []
    assert {results[name].outcome for name in OF_TEXT} == {Outcome.PASS}
    # the template writes BOS, and so does the tokenizer
    assert [one.title for one in results["bos-token"].findings] == [
        "BOS comes twice if the text of the chat template is tokenized again"
    ]


@pytest.mark.parametrize("name", FAULTS)
def test_the_right_check_is_the_only_cause(twin: HealthyTwin, name: str) -> None:
    drilled = twin.with_fault(all_faults()[name])
    assert drilled.verdict is Verdict.CAUGHT, f"{drilled.verdict}: {drilled.causes} {drilled.observed} {drilled.reason}"
