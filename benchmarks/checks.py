"""What a whole skeleton check costs beyond importing torch and transformers, on one core.

    python benchmarks/checks.py [--depth quick|default] [PRESET ...]

One process per preset, one thread, CPU seconds (user + system). The floor is a process that imports what every run
needs. The bars: floor + 8 s without routes that are not in use, + 20 s with the usual ones; 1,200 MB.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
FLOOR = "import torch; from transformers import AutoModelForCausalLM, AutoConfig, GenerationMixin, PreTrainedModel"
PRESETS = (
    "gemma-3-270m",
    "gemma-4-31B-it",
    "gemma-3-27b-it",
    "gemma-2-27b",
    "mistral-7b-v0.1",
    "gemma-3n-E4B-it",
    "gemma-4-26B-A4B-it",
)
SECONDS, MEGABYTES = {"quick": 8.0, "default": 20.0}, 1200.0


def cost(arguments: list[str]) -> tuple[float, float, int]:
    """CPU seconds, peak megabytes and exit code of one Python process."""
    with tempfile.TemporaryFile() as sink:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            stdout=sink,
            stderr=sink,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit / 1e6, process.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=PRESETS, metavar="PRESET")
    parser.add_argument("--depth", choices=SECONDS, default="default")
    given = parser.parse_args()
    cost(["-c", FLOOR])  # byte code and file cache
    floor, memory, _ = cost(["-c", FLOOR])
    print(f"{'floor':24} {floor:6.1f} s {memory:7.0f} MB")
    for name in given.presets:
        flags = ["--weights", "skeleton", "-q", "--depth", given.depth]
        seconds, memory, code = cost(["-m", "gemma_doctor", "check", name, *flags])
        within = "within" if seconds - floor <= SECONDS[given.depth] and memory <= MEGABYTES else "OVER"
        print(f"{name:24} {seconds - floor:+6.1f} s {memory:7.0f} MB  exit {code}  {within} the bars")


if __name__ == "__main__":
    main()
