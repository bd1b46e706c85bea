"""Older releases of transformers, each laid beside the installed packages: the core tests, and real faults found there.

The overlays are built by a script that is not part of this repository: TRANSFORMERS_OVERLAY names it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.overlays import OVERLAY, run_in

ROOT = Path(__file__).parent.parent
# Some of each layer of the reading path; the whole drill of an older release takes ten minutes.
FAULTS = (
    "window-ignored,window-too-wide,pads-visible,mask-too-short,positions-off-by-one,theta-of-one-kind,cos-sin-stale,"
    "evicted-one-step-early,one-key-dropped,keys-of-another-request,eps-times-1000,nan-in-one-weight"
)
CORE = {
    "4.57.6": ["test_capture.py", "test_heatmap.py", "test_model_facts.py", "test_readout.py"],
    "5.3.0": ["test_capture.py", "test_heatmap.py", "test_model_facts.py", "test_readout.py"],
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not OVERLAY, reason="TRANSFORMERS_OVERLAY names no script that builds overlays of releases"),
]


@pytest.mark.parametrize("release", CORE)
def test_the_core_tests_pass(release: str) -> None:
    files = [f"tests/{name}" for name in CORE[release]]
    done = run_in(release, "-m", "pytest", "-p", "no:cacheprovider", *files)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("release", CORE)
def test_faults_are_noticed(release: str) -> None:
    done = run_in(release, "-m", "gemma_doctor", "drill", "gemma-3-270m", "--faults", FAULTS, "-q")
    assert done.returncode == 0, done.stdout


def report_in(release: str, subject: str) -> dict[str, Any]:
    done = run_in(release, "-m", "gemma_doctor", "check", subject, "--weights", "skeleton", "--format", "json", "-q")
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["environment"]["transformers"] == release
    return report


def causes_in(report: dict[str, Any]) -> set[str]:
    return {
        finding["check"]
        for result in report["results"]
        for finding in result["findings"]
        if finding["severity"] == "error" and not finding["follows_from"]
    }


@pytest.mark.parametrize(
    ("subject", "causes"),
    [
        ("gemma-3-270m", {"past-key-length"}),
        # the release has a second fault there, from the first token on: sdpa leaves the soft-cap out (32848)
        ("gemma-2-2b", {"past-key-length", "cache-parity"}),
    ],
)
def test_the_key_that_4_51_drops_one_step_early_is_found(subject: str, causes: set[str]) -> None:
    """transformers issue 37574: silent, and only with prompts shorter than the window."""
    report = report_in("4.51.3", subject)
    assert report["exit_code"] == 1
    assert causes_in(report) == causes


def test_yarn_on_the_sliding_layers_of_olmo3_is_found_in_5_3() -> None:
    report = report_in("5.3.0", "olmo-3.1-32b-instruct")
    assert causes_in(report) == {"rope-theta"}


@pytest.mark.parametrize("name", ["hybrid-cache-boundary-37574", "chunked-prefill-no-cache", "assisted-crop-46629"])
def test_a_public_fault_is_named_where_it_lives_and_nothing_is_where_it_is_gone(name: str) -> None:
    """A sample; benchmarks/public_faults.py runs them all."""
    script = ROOT / "benchmarks" / "public_faults.py"
    done = subprocess.run(
        [sys.executable, str(script), "--overlay", OVERLAY, name], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"ok     {name}" in done.stdout
