"""Subjects that are broken or unusual as a whole: what is said of them, and that nothing crashes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from gemma_doctor import compat
from gemma_doctor.capture.collector import Collector
from gemma_doctor.capture.hooks import hooked
from gemma_doctor.capture.model_facts import attention_modules
from gemma_doctor.diagnosis import chosen_checks, conclude, diagnose
from gemma_doctor.errors import DoctorError
from gemma_doctor.examine import examine
from gemma_doctor.faults import attention_of
from gemma_doctor.finding import CheckResult, Outcome, Report, Severity
from gemma_doctor.loading import Patient
from gemma_doctor.settings import Settings

SETTINGS = Settings(weights="skeleton")


def results_of(patient: Patient) -> dict[str, CheckResult]:
    checks = chosen_checks(SETTINGS)
    collector = Collector(patient, SETTINGS, lambda line: None)
    results, _ = examine(checks, collector)
    return {one.check: one for one in conclude(results, checks, collector)}


def report_with(**overrides: Any) -> Report:
    return diagnose(Settings(subject="gemma-3-1b-it", weights="skeleton", overrides=overrides), lambda line: None)


@contextmanager
def changed(tensors: list[torch.Tensor], value: float) -> Iterator[None]:
    before = [one.clone() for one in tensors]
    with torch.no_grad():
        for one in tensors:
            one.fill_(value)
    try:
        yield
    finally:
        with torch.no_grad():
            for one, old in zip(tensors, before, strict=True):
                one.copy_(old)


def test_nan_in_one_weight_is_never_healthy(patient_of: Callable[..., Patient]) -> None:
    patient = patient_of("gemma-3-1b-it")
    with changed([attention_modules(model)[1].o_proj.weight for model in patient.models], float("nan")):
        results = results_of(patient)
    assert results["long-generate"].outcome is Outcome.FAIL
    assert "NaN" in results["long-generate"].findings[0].title
    assert "layers.1.self_attn.o_proj.weight is not finite" in results["long-generate"].findings[0].observed
    assert results["padding-side"].outcome is Outcome.SKIPPED


def test_pads_that_are_read_are_found(patient_of: Callable[..., Patient]) -> None:
    patient = patient_of("gemma-3-1b-it", "eager")

    def open_pads(_module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        mask = kwargs.get("attention_mask")
        if mask is not None and mask.shape[0] > 1 and mask.shape[2] > 1:
            kwargs["attention_mask"] = mask[:1].expand(mask.shape[0], -1, -1, -1)
        return args, kwargs

    with hooked(attention_of(patient), open_pads):
        results = results_of(patient)
    errors = {one.check for one in results.values() for item in one.findings if item.severity is Severity.ERROR}
    assert errors == {"mask-pattern", "visible-keys", "left-padded-parity"}
    assert results["mask-pattern"].findings[0].title == "real tokens may read pads"


def test_a_model_that_wants_to_stop_is_not_accused_of_looping(patient_of: Callable[..., Patient]) -> None:
    """End tokens are suppressed in the generation, so the reference must not choose them either."""
    patient = patient_of("gemma-3-1b-it")
    before = patient.reduced.generation_config.eos_token_id
    everything_but_three = list(range(3, patient.reduced.config.vocab_size))
    patient.reduced.generation_config.eos_token_id = everything_but_three
    try:
        assert compat.end_tokens(patient.reduced) == everything_but_three
        results = results_of(patient)
    finally:
        patient.reduced.generation_config.eos_token_id = before
    assert [one.severity for one in results["degeneration"].findings] in ([], [Severity.NOTE])


@pytest.mark.parametrize("window", [1, 2, 3])
def test_tiny_windows_are_examined(window: int) -> None:
    report = report_with(sliding_window=window)
    assert not [one for one in report.results if one.outcome is Outcome.ERROR]


@pytest.mark.parametrize("window", [0, -5])
def test_a_window_that_is_none_is_a_finding(window: int) -> None:
    report = report_with(sliding_window=window)
    assert not [one for one in report.results if one.outcome is Outcome.ERROR]
    assert "sliding-window" in {one.check for one in report.causes}
    assert report.exit_code == 1


def test_a_vocabulary_of_special_tokens_is_refused_in_one_line() -> None:
    with pytest.raises(DoctorError, match="special tokens only"):
        report_with(vocab_size=2)


def test_flex_attention_on_a_cpu_is_refused_before_it_compiles() -> None:
    settings = Settings(subject="gemma-3-1b-it", weights="skeleton", attn_implementation="flex_attention", device="cpu")
    with pytest.raises(DoctorError, match="cannot be compiled on a CPU"):
        diagnose(settings, lambda line: None)


def test_no_pass_goes_beyond_the_models_positions() -> None:
    report = report_with(max_position_embeddings=100)
    assert report.exit_code == 0
    assert isinstance(report.passes["prompt_length"], int) and isinstance(report.passes["generated"], int)
    assert report.passes["prompt_length"] + report.passes["generated"] <= 100
    fewer = report_with(max_position_embeddings=40)
    (generated,) = (one for one in fewer.results if one.check == "long-generate")
    assert generated.outcome is Outcome.SKIPPED


def test_a_window_too_long_to_walk_to_is_examined_at_the_reduced_one_only() -> None:
    settings = Settings(
        subject="qwen2.5-3b-instruct",
        weights="skeleton",
        overrides={"use_sliding_window": True, "max_window_layers": 0},
    )
    report = diagnose(settings, lambda line: None)
    assert (report.passes["window"], report.passes["true_window_crossed"]) == (32768, False)
    assert not [one for one in report.findings if one.severity is Severity.ERROR]
