"""The first page of a bundle: what was found, how to see it, what is in it and what is not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gemma_doctor.finding import Finding, Report
from gemma_doctor.report.escape import escape
from gemma_doctor.report.verdict import headline
from gemma_doctor.reproduction import Attempts, Trial

CONTENTS = {
    "report.txt": "the whole report, as the terminal shows it with `-v`",
    "report.json": "the same for programs",
    "environment.json": "versions of packages, device, dtype, attention backend",
    "config.json": "the configuration: numbers, switches and the library's own words",
    "reproduce.py": "shows the fault with torch and transformers alone",
}
FACTS = ("transformers", "torch", "python", "system", "machine", "device", "accelerator", "dtype", "backend", "seed")


def render(
    report: Report,
    environment: Mapping[str, Any],
    names: Sequence[str],
    attempts: Attempts,
    left_out: Sequence[str],
) -> str:
    """Markdown. All that comes from a subject stands in blocks of code.

    Args:
        report: redacted, as `attempts` are.
        environment: see `bundle.environment_of`.
        names: of the other files.
        attempts: what was tried, and what came of it.
        left_out: what is not in the bundle, in words.
    """
    return "\n".join(
        [
            "# Report of gemma-doctor",
            "",
            *_fenced([f"{report.subject['name']}: {report.subject['family']}", headline(report)]),
            "",
            *_findings([*report.causes, *report.warnings]),
            "## Reproduce",
            "",
            *_reproduction(attempts),
            "",
            "## Environment",
            "",
            *_fenced([f"{key}: {environment[key]}" for key in FACTS if environment.get(key) is not None]),
            "",
            "## Files",
            "",
            *(f"- `{name}`: {CONTENTS.get(name, 'what should be read and what is read')}" for name in names),
            "",
            "## Left out",
            "",
            *(f"- {one}" for one in left_out),
            "",
        ]
    )


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    """Causes, then warnings."""
    yield "## Found"
    yield ""
    if not findings:
        yield "Nothing above a note."
        yield ""
    for one in findings:
        parts = {"observed": one.observed, "expected": one.expected, "effect": one.effect, "known": one.known}
        said = [f"{name:<9} {text}" for name, text in parts.items() if text]
        yield from _fenced([f"{one.severity.word} {one.check}: {one.title}", *said, f"do        {one.do}"])
        yield ""


def _reproduction(attempts: Attempts) -> Iterator[str]:
    script, trial = attempts.chosen
    if script is None:
        yield "There is no script: nothing was found that a short one shows."
    else:
        yield f"    python reproduce.py{' FOLDER_WITH_THE_TOKENIZER' if script.takes_folder else ''}"
        yield ""
        yield f"About `{script.finding.check}`. It needs torch and transformers alone, and ends with 1 if the fault is"
        yield "there, 0 if it is not, 2 if it could not be run."
        yield ""
        yield from _what_it_printed(trial)
    others = [
        f"{one.finding.check}: {one.finding.title} (a script was tried, and {result.verdict})"
        for one, result in attempts.tried
        if one is not script and result is not None
    ]
    others += [f"{one.check}: {one.title} ({why})" for one, why in attempts.without]
    if others:
        yield from ("", "No script is given for:", "")
        yield from _fenced(others)


def _what_it_printed(trial: Trial | None) -> Iterator[str]:
    if trial is None:
        yield "It was not run when this bundle was made: there is no folder with a tokenizer."
        return
    yield f"Run once when this bundle was made: {trial.verdict}. It printed:"
    yield ""
    yield from _fenced(trial.printed.splitlines() or ["(nothing)"])


def _fenced(lines: Sequence[str]) -> Iterator[str]:
    """A block of code that nothing in it can end."""
    text = [escape(line) for line in lines]
    longest = max((len(run) for line in text for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}text"
    yield from text
    yield fence
