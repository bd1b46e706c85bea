"""Run files of sample_configs/: healthy ones come out clean, faulty ones fail with the check they are named after."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemma_doctor import settings
from gemma_doctor.diagnosis import diagnose
from gemma_doctor.finding import Severity

SAMPLES = Path(__file__).parent.parent / "sample_configs"
HEALTHY = sorted(SAMPLES.glob("*.yaml"))
FAULTY = sorted((SAMPLES / "faulty").glob("*.yaml"))


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_a_healthy_sample_comes_out_clean(path: Path) -> None:
    report = diagnose(settings.resolve({"subject": str(path), "weights": "skeleton"}, {}), lambda line: None)
    assert [one for one in report.findings if one.severity > Severity.NOTE] == []
    assert report.exit_code == 0


@pytest.mark.parametrize("path", FAULTY, ids=lambda path: path.stem)
def test_a_faulty_sample_fails_with_its_check_as_the_only_cause(path: Path) -> None:
    report = diagnose(settings.resolve({"subject": str(path)}, {}), lambda line: None)
    (cause,) = {finding.check for finding in report.causes}
    assert path.stem.startswith(cause)
    others = [one for one in report.findings if one.severity is Severity.ERROR and one.check != cause]
    assert all(one.follows_from for one in others)
    assert report.exit_code == 1


@pytest.mark.parametrize("check", ["sliding-window", "layer-pattern", "rope-theta", "rms-norm-eps"])
def test_there_is_a_sample_for_every_check_of_the_configuration(check: str) -> None:
    assert any(path.stem.startswith(check) for path in FAULTY)
