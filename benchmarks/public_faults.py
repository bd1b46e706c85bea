"""Runs the doctor in releases of transformers that have a public fault, and in releases that have lost it.

    python benchmarks/public_faults.py --overlay OVERLAY_SCRIPT [--known-faults FOLDER] [--sample N] [ADVISORY ...]

First table: every advisory with a trigger. In the sick release the finding of its cause must name it, at `error` (at
`warning` where the trigger names no cause); in the well release there must be no error at all. Second table, with a
folder of known faults (its faults.yaml): which advisory covers each entry of transformers that was reproduced by a
trigger in a release from 4.50 on. Exit code 1 if a line is wrong, 2 if there is nothing to run.

OVERLAY_SCRIPT is called with a Python and a release, and prints a folder for PYTHONPATH; TRANSFORMERS_OVERLAY may name
it as well. Each run is a process of its own with one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from gemma_doctor.advisories import Entry, Trigger, entries

ROOT = Path(__file__).parent.parent
FIRST = (4, 50)
# Entries that are no faults of a release: what users write themselves, and what is so by design.
NO_ADVISORY = {
    "right-pad-generate": "no advisory, user code: check padding-side",
    "missing-mask-pad-eos": "no advisory, user code: the same kind is faults/pads_visible.py",
    "chat-template-double-bos-37686": "no advisory, user code",
    "rope-buffer-cast-25681": "no advisory, user code",
    "qwen-max-window-layers-40126": "no advisory, by design: check sliding-window",
}


class Wrong(Exception):
    """A run that could not be read."""


def report_in(overlay: str, release: str, trigger: Trigger) -> dict[str, Any]:
    """The report of one trigger in one release.

    Raises:
        Wrong: there is none, or it is of another release.
    """
    built = subprocess.run(["bash", overlay, sys.executable, release], capture_output=True, text=True, check=True)
    arguments = ["check", trigger.subject, "--weights", "skeleton", "--format", "json", "-q"]
    arguments += ["--routes", ",".join(trigger.routes)] if trigger.routes else []
    if trigger.attn_implementation is not None:
        arguments += ["--attn-implementation", trigger.attn_implementation]
    arguments += ["--depth", "quick"]
    environment = {**os.environ, "PYTHONPATH": built.stdout.strip(), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "gemma_doctor", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    if not done.stdout:
        raise Wrong(f"exit {done.returncode}: {' '.join(done.stderr.split())[-200:]}")
    report: dict[str, Any] = json.loads(done.stdout)
    if report["environment"]["transformers"] != release:
        raise Wrong(f"ran in transformers {report['environment']['transformers']}")
    return report


def findings(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [finding for result in report["results"] for finding in result["findings"]]


def in_sick_release(overlay: str, entry: Entry) -> tuple[bool, str]:
    """Whether the fault is named by its cause, and what names it."""
    trigger = entry.trigger
    assert trigger is not None
    found = findings(report_in(overlay, trigger.sick, trigger))
    naming = [one for one in found if one["known"].startswith(entry.advisory.reference)]
    # known-release lists what was not reproduced too
    naming = [one for one in naming if re.search(r"; reproduced by this run", one["known"] + one["observed"])]
    wanted = "error" if trigger.cause else "warning"
    right = [one for one in naming if one["severity"] == wanted and trigger.cause in ("", one["check"])]
    causes = sorted({one["check"] for one in found if one["severity"] == "error" and not one["follows_from"]})
    named = ", ".join(f"{one['check']} ({one['severity']})" for one in naming) or "nothing names it"
    return bool(right), f"{named}; causes: {', '.join(causes) or 'none'}"


def in_well_release(overlay: str, entry: Entry) -> tuple[bool, str]:
    """Whether nothing is accused, and what is if something is."""
    trigger = entry.trigger
    assert trigger is not None
    report = report_in(overlay, trigger.well, trigger)
    errors = sorted({one["check"] for one in findings(report) if one["severity"] == "error"})
    return report["exit_code"] == 0, ", ".join(errors) or f"exit {report['exit_code']}"


def first_table(overlay: str, wanted: list[Entry]) -> bool:
    """True if every line is right."""
    fine = True
    for entry in wanted:
        trigger = entry.trigger
        assert trigger is not None
        for release, look in ((trigger.sick, in_sick_release), (trigger.well, in_well_release)):
            try:
                right, said = look(overlay, entry)
            except Wrong as error:
                right, said = False, str(error)
            fine &= right
            state = "sick" if look is in_sick_release else "well"
            print(f"{'ok' if right else 'WRONG':<6} {entry.advisory.id:<34} {state} {release:<8} {said}", flush=True)
    return fine


def covering(fault: dict[str, Any]) -> str:
    """What covers an entry of the known faults, by its id or its report; "" if nothing does."""
    reports = {one.advisory.id: {one.advisory.url, *one.advisory.related} for one in entries()}
    found = [name for name, urls in reports.items() if name == fault["id"] or fault["url"] in urls]
    return ", ".join(found) or NO_ADVISORY.get(fault["id"], "")


def reaches(affected: str) -> bool:
    """A text like "4.43.4 - 4.51.3 (measured ...)" names a release from 4.50 on, or all of them."""
    releases = [tuple(map(int, one)) for one in re.findall(r"\b([45])\.(\d+)", affected)]
    return not releases or max(releases) >= FIRST


def second_table(folder: Path) -> bool:
    """True if every entry is covered."""
    fine = True
    for fault in yaml.safe_load((folder / "faults.yaml").read_text(encoding="utf-8")):
        if fault["reproduced"] == "yes" and "trigger_script" in fault and reaches(str(fault["affected"])):
            said = covering(fault)
            fine &= bool(said)
            print(f"{'ok' if said else 'WRONG':<6} {fault['id']:<34} {said or 'not covered'}")
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("advisories", nargs="*", metavar="ADVISORY", help="only these")
    parser.add_argument("--overlay", default=os.environ.get("TRANSFORMERS_OVERLAY"), help="script that builds overlays")
    parser.add_argument("--known-faults", type=Path, help="folder with a faults.yaml")
    parser.add_argument("--sample", type=int, help="only the first N")
    arguments = parser.parse_args()
    if not arguments.overlay and (arguments.advisories or not arguments.known_faults):
        parser.error("nothing to run: --overlay (or TRANSFORMERS_OVERLAY) is needed, or --known-faults for its table")
    if arguments.sample is not None and arguments.sample < 1:
        parser.error("--sample: at least 1")
    runnable = {one.advisory.id: one for one in entries() if one.trigger is not None}
    unknown = sorted(set(arguments.advisories) - runnable.keys())
    if unknown:
        parser.error(f"no advisory with a trigger: {', '.join(unknown)}")
    wanted = [one for name, one in runnable.items() if name in (arguments.advisories or runnable)]
    fine = True
    if arguments.overlay:
        fine = first_table(arguments.overlay, wanted[: arguments.sample])
    for one in entries():
        if one.untried:
            print(f"{'-':<6} {one.advisory.id:<34} not run: {one.untried}")
    if arguments.known_faults:
        print()
        fine &= second_table(arguments.known_faults)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
