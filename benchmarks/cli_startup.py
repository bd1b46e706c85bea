"""How long the commands without a model take, against importing typer and rich alone.

    python benchmarks/cli_startup.py [--runs 7]

Prints the least of several alternating runs of each, in milliseconds, and its ratio to the import.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
FLOOR = "import typer, rich"
COMMANDS = (
    "--help",
    "check --help",
    "list",
    "explain mask-shape",
    "presets",
    "advisories",
    "check gemma-3-270m --static",
)


def seconds(arguments: list[str]) -> float:
    """Duration of one Python process."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    lines = {FLOOR: ["-c", FLOOR], **{line: ["-m", "gemma_doctor", *line.split()] for line in COMMANDS}}
    for arguments in lines.values():
        seconds(arguments)  # byte code and file cache
    least = dict.fromkeys(lines, float("inf"))
    for _ in range(runs):
        for name, arguments in lines.items():
            least[name] = min(least[name], seconds(arguments))
    for name, took in least.items():
        print(f"{name:<30} {1000 * took:6.0f} ms {took / least[FLOOR]:5.1f} x")


if __name__ == "__main__":
    main()
