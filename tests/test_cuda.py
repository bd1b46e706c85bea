"""What only a CUDA device shows; skipped without one. benchmarks/gpu_check.py says more, with timings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gemma_doctor import compat, demo
from gemma_doctor.diagnosis import diagnose
from gemma_doctor.finding import Outcome, Severity
from gemma_doctor.settings import Settings

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu_check.py"
CHECKS = ("long-generate", "attention-backend", "all-masked-rows")

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
needs_demo = pytest.mark.skipif(
    not (demo.installed() and compat.reads_gguf("gemma3")), reason="needs the demo extra, and a release that reads it"
)


@needs_cuda
@needs_demo
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("check", CHECKS)
def test_half_precision_is_healthy_on_the_gpu(check: str, dtype: str) -> None:
    settings = Settings(weights="real", device="cuda", dtype=dtype, select=(check,), depth="quick")
    report = diagnose(settings, lambda line: None)
    (result,) = report.results
    assert report.environment["dtype"] == dtype
    assert result.outcome is Outcome.PASS
    assert [one for one in report.findings if one.severity > Severity.NOTE] == []


@needs_cuda
@pytest.mark.parametrize("check", CHECKS)
def test_a_skeleton_is_healthy_on_the_gpu(check: str) -> None:
    settings = Settings(subject="gemma-3-1b-it", weights="skeleton", device="cuda", select=(check,), depth="quick")
    report = diagnose(settings, lambda line: None)
    assert {one.outcome for one in report.results} <= {Outcome.PASS, Outcome.NOT_APPLICABLE}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_the_script_says_in_one_line_that_there_is_no_gpu() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("no CUDA device")


@pytest.mark.slow
def test_the_script_runs_on_a_skeleton() -> None:
    command = [sys.executable, SCRIPT, "gemma-3-270m", "--device", "cpu", "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert rows[0]["outcomes"] == dict.fromkeys(CHECKS, "pass")
    assert rows[0]["tokens_per_second"] > 0
    assert "cannot be compiled on a CPU" in next(row["skipped"] for row in rows if "flex" in row["what"])
