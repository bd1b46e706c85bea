"""A script is run once before it is given away: what it prints is said beside it, and nothing else is claimed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gemma_doctor.finding import Finding
from gemma_doctor.reproduction.writing import Script, Written
from gemma_doctor.settings import Progress

REPRODUCED, NOT_REPRODUCED = 1, 0  # exit codes of a script; any other: it could not be run
SECONDS = 180.0
MOST_LINES = 40


@dataclass(frozen=True)
class Trial:
    """What became of a script.

    Attributes:
        code: its exit code; None if it was stopped after `SECONDS`.
        printed: what it wrote to stdout and, if it broke off, to stderr; the last lines.
    """

    code: int | None
    printed: str

    @property
    def reproduced(self) -> bool:
        """It ended as a script does that found the fault; an exception before its own guard ends in 1 as well."""
        return self.code == REPRODUCED and "REPRODUCED: " in self.printed

    @property
    def verdict(self) -> str:
        """One line."""
        said = {REPRODUCED: "it reproduced the cause", NOT_REPRODUCED: "it did NOT reproduce the cause"}
        if self.code is None:
            return f"it was stopped after {SECONDS:.0f} s, and proves nothing"
        if self.code == NOT_REPRODUCED or self.reproduced:
            return said[self.code]
        return "it could not be run, and proves nothing"


@dataclass(frozen=True)
class Attempts:
    """Scripts of one report, and what came of them.

    Attributes:
        tried: scripts and their trials; None where one could not be tried, for want of a tokenizer.
        without: findings that no script was written for, and why.
    """

    tried: tuple[tuple[Script, Trial | None], ...]
    without: tuple[tuple[Finding, str], ...]

    @property
    def chosen(self) -> tuple[Script | None, Trial | None]:
        """The script that reproduced its finding, else the first."""
        right = [one for one in self.tried if one[1] is not None and one[1].reproduced]
        return next(iter((*right, *self.tried)), (None, None))


def attempted(written: Written, folder: str | None, progress: Progress) -> Attempts:
    """Try scripts one after the other, until one reproduces its finding.

    Args:
        folder: with a tokenizer, None if there is none.
    """
    results: list[tuple[Script, Trial | None]] = []
    for script in written.scripts:
        can_run = folder is not None or not script.takes_folder
        progress(f"a script for {script.finding.check}{': one run' if can_run else ''}")
        trial = tried(script.text, folder if script.takes_folder else None) if can_run else None
        results.append((script, trial))
        if trial is not None and trial.reproduced:
            break
    return Attempts(tuple(results), written.without)


def tried(text: str, folder: str | None = None, seconds: float = SECONDS) -> Trial:
    """Run a script in a process of its own, in an empty folder, with this interpreter and its packages.

    Args:
        text: of the script.
        folder: its argument, if it takes one.
        seconds: after which it is stopped.
    """
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "reproduce.py")
        path.write_text(text, encoding="utf-8")
        quiet = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
        try:
            done = subprocess.run(
                [sys.executable, str(path), *([folder] if folder else [])],
                cwd=place,
                env={**os.environ, **quiet},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Trial(None, "")
    said = done.stdout if done.returncode in (REPRODUCED, NOT_REPRODUCED) and done.stdout else done.stdout + done.stderr
    return Trial(done.returncode, "\n".join(said.splitlines()[-MOST_LINES:]))
