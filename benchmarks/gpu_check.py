"""What only a GPU shows, within five minutes: half precision on its kernels, flex and flash, and what they take.

    python benchmarks/gpu_check.py [SUBJECT] [--json] [--device cuda]
    python benchmarks/gpu_check.py gemma-3-270m --device cpu --quick      tests the script itself, on a skeleton

One line per run. Exit code 0 if nothing at `error` was found, 1 if something was, 2 without a CUDA device, without the
weights, or where nothing ran.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

from gemma_doctor.cli.deadline import deadline_or_error
from gemma_doctor.diagnosis import diagnose
from gemma_doctor.errors import DoctorError
from gemma_doctor.finding import Outcome, Report, Severity
from gemma_doctor.report.escape import escape
from gemma_doctor.settings import Settings

HALVES = ("float16", "bfloat16")
CHECKS = ("long-generate", "attention-backend", "all-masked-rows")
READ = ("visible-keys", "mask-pattern", "attention-backend")
READERS = ("sdpa", "flex_attention", "flash_attention_2")
MOST_SECONDS = 300


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        what: dtype and attention implementation.
        outcomes: by check.
        findings: at `warning` and above, in one line each.
        failed: an error was found, or a check crashed.
        seconds, tokens_per_second, peak_memory_mb: of the whole run, and of its long generation; None where unknown.
        kernels: seconds of one attention call, as attention-backend measured them.
        skipped: why it was not run, "" if it was.
    """

    what: str
    outcomes: dict[str, str]
    findings: tuple[str, ...] = ()
    failed: bool = False
    seconds: float = 0.0
    tokens_per_second: float | None = None
    peak_memory_mb: float | None = None
    kernels: tuple[dict[str, Any], ...] = ()
    skipped: str = ""


def plan(arguments: argparse.Namespace) -> Iterator[tuple[str, Settings]]:
    """Name and settings of each run; the least that shows something comes first."""
    usual: dict[str, Any] = {"subject": arguments.subject, "device": arguments.device, "depth": "quick"}
    # where there are no weights that is said, instead of a skeleton being run under their name
    usual |= {"weights": "skeleton", "margin": 8} if arguments.quick else {"weights": "real"}
    for dtype in HALVES[:1] if arguments.quick else HALVES:
        yield dtype, Settings(**usual, dtype=dtype, select=CHECKS)
    for backend in READERS:
        dtype = "float32" if backend == "sdpa" else "bfloat16"  # flash takes half precision only
        settings = Settings(**usual, dtype=dtype, attn_implementation=backend, select=READ)
        yield f"{dtype}, {backend}", settings


def run(what: str, settings: Settings, most: float) -> Row:
    """One of them, in at most so many seconds."""
    started = time.perf_counter()
    try:
        with deadline_or_error(most):
            report = diagnose(settings, lambda line: None)
    except DoctorError as error:
        return Row(what, {}, skipped=error.message)
    return _row(what, report, time.perf_counter() - started)


def _row(what: str, report: Report, seconds: float) -> Row:
    loud = [one for one in report.findings if one.severity > Severity.NOTE]
    return Row(
        what=what,
        outcomes={one.check: one.outcome.value for one in report.results},
        findings=tuple(f"{one.check} {one.severity.word}: {one.title}; {one.observed}" for one in loud),
        failed=any(one.severity is Severity.ERROR for one in loud) or report.count(Outcome.ERROR) > 0,
        seconds=round(seconds, 1),
        tokens_per_second=report.timing.get("tokens_per_second"),
        peak_memory_mb=report.timing.get("peak_memory_mb"),
        kernels=tuple(report.timing.get("attention_backend", ())),
    )


def shown(row: Row) -> Iterator[str]:
    """As lines of text."""
    if row.skipped:
        yield f"{row.what:<30} skipped: {row.skipped}"
        return
    said = ", ".join(f"{check} {outcome}" for check, outcome in row.outcomes.items())
    speed = f", {row.tokens_per_second:.1f} tokens/s" if row.tokens_per_second else ""
    memory = f", peak {row.peak_memory_mb:,.0f} MB" if row.peak_memory_mb else ""
    yield f"{row.what:<30} {row.seconds:6.1f} s{speed}{memory}   {said}"
    yield from (f"    {finding}" for finding in row.findings)
    for call in row.kernels:
        step = "decode" if call["decode"] else f"prefill of {call['queries']:,}"
        yield f"    {step}, {call['keys']:,} keys: {call['ran']} {1000 * call['seconds']:.3g} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subject", nargs="?", help="as of gemma-doctor check; the demo model without")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="a skeleton, one dtype, short generations")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        print("no CUDA device: nothing to check (--device cpu --quick tests the script)", file=sys.stderr)
        return 2
    started, rows = time.perf_counter(), []
    for what, settings in plan(arguments):
        spent = time.perf_counter() - started
        row = (
            run(what, settings, MOST_SECONDS - spent)
            if spent < MOST_SECONDS
            else Row(what, {}, skipped=f"{spent:.0f} s are over")
        )
        rows.append(row)
        if not arguments.json:
            print("\n".join(map(escape, shown(row))), flush=True)
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    if all(row.skipped for row in rows):
        print("nothing ran", file=sys.stderr)
        return 2
    return 1 if any(row.failed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
