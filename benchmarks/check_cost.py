"""What watching, reading out and judging add to the passes of a default check, on the real Gemma 3 270M.

    python benchmarks/check_cost.py [--pairs 2] [SUBJECT]

Whole examinations and bare ones alternate in one process, with the model in memory. A bare one makes the same passes,
reference and route runs, but nothing watches them: no hook, no readout, no check. Evidence that cannot be made without
watching is named and counts nothing, so that the ratio errs upwards. Printed are the least of each. The bar: 1.3.
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from unittest import mock

from gemma_doctor.capture.collector import Collector
from gemma_doctor.check import Check, CouldNotLook, NotApplicable
from gemma_doctor.diagnosis import chosen_checks, conclude
from gemma_doctor.errors import in_one_line
from gemma_doctor.examine import examine
from gemma_doctor.loading import Patient, admit
from gemma_doctor.report.escape import escape
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve

BAR = 1.3


def whole(patient: Patient, settings: Settings, checks: tuple[Check, ...]) -> float:
    """Seconds of an examination."""
    started = time.perf_counter()
    collector = Collector(patient, settings, lambda line: None)
    results, _ = examine(checks, collector)
    conclude(results, checks, collector)
    return time.perf_counter() - started


def bare(patient: Patient, settings: Settings, checks: tuple[Check, ...], missing: set[str]) -> float:
    """Seconds of what it runs. `missing` collects what cannot be run without watching."""
    started = time.perf_counter()
    with mock.patch("gemma_doctor.capture.runs.recording", lambda model, recorder: nullcontext()):
        collector = Collector(patient, settings, lambda line: None)
        for need in dict.fromkeys((need.type, need.of) for one in checks for need in one.needs):
            try:
                collector.get(*need)
            except (NotApplicable, CouldNotLook):
                continue
            except Exception as error:  # evidence that only watching makes
                missing.add(f"{need[0].__name__} {need[1]}: {type(error).__name__}: {in_one_line(error)}")
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subject", nargs="?", default="gemma-3-270m")
    parser.add_argument("--pairs", type=int, default=2)
    given = parser.parse_args()
    settings = Settings(subject=given.subject)
    checks = chosen_checks(settings)
    patient = admit(resolve(settings), settings, print)
    missing: set[str] = set()
    wholes, bares = [], []
    with patient.threads():
        for _ in range(given.pairs):
            wholes.append(whole(patient, settings, checks))
            bares.append(bare(patient, settings, checks, missing))
    for line in sorted(missing):
        print(escape(f"only by watching: {line}"))
    ratio = min(wholes) / min(bares)
    print(escape(f"{patient.subject.name}, {patient.subject.weights} weights, {len(checks)} checks"))
    said = "within" if ratio <= BAR else "OVER"
    print(f"whole {min(wholes):.1f} s, bare {min(bares):.1f} s, ratio {ratio:.3f} ({said})")


if __name__ == "__main__":
    main()
