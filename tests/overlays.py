"""Commands inside another release of transformers, in an overlay folder beside the installed torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
# The script that builds overlays; "" where nobody names one.
OVERLAY = os.environ.get("TRANSFORMERS_OVERLAY", "")


def run_in(release: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    overlay = subprocess.run(
        ["bash", OVERLAY, sys.executable, release], capture_output=True, text=True, check=True
    ).stdout.strip()
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": overlay, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
