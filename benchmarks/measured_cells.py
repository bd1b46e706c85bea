"""Holds the doctor against measured cells: release x family x backend x scenario of real faults and healthy routes.

    python benchmarks/measured_cells.py --cells TABLE --overlay SCRIPT --keep DIR [--releases 5.12.0 ...] [--sample N]

The cells are a table (version, family, attn, scenario, verdict, value, note, cause) measured without the doctor; SCRIPT
prints a folder to put first on PYTHONPATH for a given Python and release. Neither is part of this repository;
GEMMA_DOCTOR_CELLS and TRANSFORMERS_OVERLAY name them as well. For each combination of release, family and backend the
doctor examines a skeleton with --depth deep, which declares all routes but full-cache. Its report is compared twice:
any error against any sick cell, and scenario by scenario as measured_cells.yaml maps them to checks. DIR keeps reports,
so that comparing again costs nothing; delete them after a change of the doctor. Exit 1 on a disagreement that no
reason explains.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agreement import Book, Combination, Comparison, Visit, compare, read_book, read_cells

from gemma_doctor import presets

BOOK = Path(__file__).with_suffix(".yaml")
ROOT = Path(__file__).parent.parent
SECONDS = 600


# --- running ---------------------------------------------------------------------------------------------------------


class Runner:
    """Runs the doctor on combinations, and keeps what it said."""

    def __init__(self, book: Book, overlay: str, keep: Path) -> None:
        self._book, self._overlay, self._keep = book, overlay, keep
        self._folders = {version("transformers"): ""}

    def prepare(self, releases: Iterable[str]) -> None:
        """Have the overlays of those releases ready; the installed one needs none."""
        for release in dict.fromkeys(releases):
            if release not in self._folders:
                command = ["bash", self._overlay, sys.executable, release]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                self._folders[release] = done.stdout.strip()

    def visit(self, of: Combination) -> Visit:
        path = self._keep / of.release / f"{of.family}-{of.backend}.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            record = self._run(of)
            if record["broke"]:
                return Visit(**record)  # another time it may not
            part = path.with_suffix(".part")
            part.write_text(json.dumps(record, indent=1), encoding="utf-8")
            part.replace(path)
        return Visit(**json.loads(path.read_text(encoding="utf-8")))

    def _run(self, of: Combination) -> dict[str, Any]:
        command = [sys.executable, "-m", "gemma_doctor", "check", self._subject(of.family), "--weights", "skeleton"]
        command += ["--depth", "deep", "--attn-implementation", of.backend, "--format", "json", "-q"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": self._folders[of.release]}
        started = time.perf_counter()
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return {"report": None, "stderr": f"not done after {SECONDS} s", "seconds": SECONDS, "broke": True}
        report = json.loads(done.stdout) if done.stdout.strip() else None
        if report is not None and report["environment"]["transformers"] != of.release:
            raise RuntimeError(f"ran in transformers {report['environment']['transformers']}, not in {of.release}")
        return {
            "report": report,
            "stderr": done.stderr[-2000:],
            "seconds": round(time.perf_counter() - started, 1),
            "broke": done.returncode not in (0, 1, 2) or "internal error" in done.stderr,
        }

    def _subject(self, family: str) -> str:
        """A configuration file: a preset's, changed as the book says."""
        entry = self._book.subjects[family]
        config = presets.load(entry["preset"]) | entry.get("with", {})
        for key in entry.get("without", ()):
            del config[key]
        path = (self._keep / f"{family}.json").resolve()
        path.write_text(json.dumps(config, indent=1), encoding="utf-8")
        return str(path)


# --- printing --------------------------------------------------------------------------------------------------------


def lines(result: Comparison, visit: Visit) -> Iterator[str]:
    """One combination: its line, then its disagreements."""
    word = "sick" if result.sick else "ok"
    open_ones = [one for one in result.disagreements if not one.reason]
    agrees = "DISAGREES" if open_ones else "explained" if result.disagreements else "agrees"
    counts = f"{result.cells:2} cells, {len(result.unlooked)} not looked at, {result.errors} errors"
    yield f"{result.of} {word:4} {agrees:9} {counts}, {visit.seconds:.0f} s"
    for one in result.disagreements:
        state = "explained" if one.reason else "OPEN"
        yield f"    {state:9} {one.kind}, {', '.join(one.scenarios) or 'no scenario'}: {one.said}"


def summary(results: Sequence[Comparison], book: Book) -> Iterator[str]:
    """Agreement in figures."""
    disagreements = [one for result in results for one in result.disagreements]
    verdicts = {one.of for one in disagreements if one.kind in ("verdict", "not examined")}
    explained = {one.of for one in disagreements if one.kind == "verdict" and one.reason}
    yield f"verdicts: {len(results) - len(verdicts)} of {len(results)} agree, {len(explained)} more are explained"
    cells = sum(result.cells for result in results)
    parted = sum(result.count(kind) for result in results for kind in ("missed", "false alarm", "refused"))
    unlooked = Counter(f"{name} ({why})" for result in results for name, why in result.unlooked.items())
    yield f"scenarios: {cells - parted} of {cells} agree; {unlooked.total()} healthy ones were not looked at"
    kinds = Counter((one.kind, "explained" if one.reason else "open") for one in disagreements)
    yield from (f"  {kind}, {state}: {count}" for (kind, state), count in sorted(kinds.items()))
    used = Counter(one.reason for one in disagreements if one.kind != "verdict")
    yield from (f"  explained {used[one['why']]:3} x {', '.join(one['checks'])}: {one['why']}" for one in book.reasons)
    yield from (f"  not looked at {count:3} x {what}" for what, count in unlooked.most_common())


def chosen(cells: Mapping[Combination, Any], arguments: argparse.Namespace) -> list[Combination]:
    """The combinations that the arguments name, in the table's order; `sample` of them if given, the same each time."""
    wanted = {"release": arguments.releases, "family": arguments.families, "backend": arguments.backends}
    found = [of for of in cells if all(not names or getattr(of, key) in names for key, names in wanted.items())]
    if arguments.sample and arguments.sample < len(found):
        kept = set(random.Random(0).sample(found, arguments.sample))
        found = [of for of in found if of in kept]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    environment = os.environ
    parser.add_argument("--cells", type=Path, default=environment.get("GEMMA_DOCTOR_CELLS"), help="the table")
    parser.add_argument("--overlay", default=environment.get("TRANSFORMERS_OVERLAY"), help="script that lays a release")
    parser.add_argument("--keep", type=Path, required=True, help="folder for the reports")
    for name in ("releases", "families", "backends"):
        parser.add_argument(f"--{name}", nargs="+", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sample", type=int, default=0, help="look at so many combinations only")
    arguments = parser.parse_args()
    if not arguments.cells or not arguments.overlay:
        parser.error("--cells and --overlay are needed, or GEMMA_DOCTOR_CELLS and TRANSFORMERS_OVERLAY")
    cells, book = read_cells(Path(arguments.cells)), read_book(BOOK)
    combinations = chosen(cells, arguments)
    runner, results = Runner(book, arguments.overlay, arguments.keep), []
    runner.prepare(of.release for of in combinations)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for of, visit in zip(combinations, pool.map(runner.visit, combinations), strict=True):
            results.append(compare(of, cells[of], visit, book))
            print("\n".join(lines(results[-1], visit)), flush=True)
    print("\n".join(summary(results, book)))
    return int(not results or any(not one.reason for result in results for one in result.disagreements))


if __name__ == "__main__":
    sys.exit(main())
