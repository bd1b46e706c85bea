"""The pages of the docs on checks: one per check, from its docstring, with an example of what it says.

    python benchmarks/check_pages.py              # docstrings anew, examples as they stand in the pages
    python benchmarks/check_pages.py --examples   # put a fault in for each check and see what it says (some minutes)
    python benchmarks/check_pages.py --examples recall window-crossing

An example is what a check said when a fault of `gemma_doctor/faults/` was put into a healthy subject.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemma_doctor import documentation
from gemma_doctor.check import GROUPS, Check
from gemma_doctor.cli.listing import needs
from gemma_doctor.registry import built_in

if TYPE_CHECKING:
    from gemma_doctor.drill import HealthyTwin
    from gemma_doctor.faults import Fault
    from gemma_doctor.finding import Report

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "checks"
COMMAND = "python benchmarks/check_pages.py"
EXAMPLE = "## An example"
# Where to look for a subject that can have a fault, in this order: by the name that benchmarks/drill.py has for it.
SMALL = "./small-gemma"
WHERE = ("gemma3", "small gemma3 with a tokenizer", "gemma4", "gemma3n", "mistral", "llama")
# Checks that none of those shows: what is examined instead, the fault that is put in, and that in words.
ON_THE_REAL = "On the real Gemma 3 270M"
ELSEWHERE: dict[str, tuple[dict[str, Any], str, str]] = {
    "full-cache-parity": (
        {"subject": "gemma-3-270m", "weights": "skeleton", "routes": ("full-cache",)},
        "",
        "On a skeleton of `gemma-3-270m`, as transformers {transformers} is",
    ),
    "gguf-metadata": ({"subject": "tiny.gguf", "weights": "real"}, "gguf-key-lost", "On a small GGUF file"),
    "recall": ({"weights": "real"}, "far-keys-dropped", ON_THE_REAL),
    "window-crossing": (
        {"weights": "real", "overrides": {"sliding_window": 100_000}},
        "",
        f"{ON_THE_REAL}, with `sliding_window: 100000` laid over its configuration",
    ),
}
# No example is made of these, and why.
NONE_HERE = {
    "flash-attention-parity": "its route needs flash-attn and a GPU",
    "flex-attention-parity": "its route needs a GPU: flex attention compiles no decode step on a CPU",
    "offloaded-cache-parity": "its route needs a GPU to bring keys back from",
    "quantised-cache-parity": "its route needs optimum-quanto or hqq",
    "regression": "what is worse depends on what the baseline holds",
}


# --- pages -----------------------------------------------------------------------------------------------------------


def page(check: Check, example: str) -> str:
    """One check's page.

    Args:
        example: the body of its section, "" if there is none yet.
    """
    static = " It also runs in `check --static`." if check.is_static else ""
    parts = [
        f"# {check.id}",
        f"*Made by `{COMMAND}` from the check's own docstring, which `gemma-doctor explain {check.id}` prints.*",
        check.title,
        f"Group *{check.group}*; needs {needs(check)}.{static}",
        *_sections(check),
    ]
    if check.thresholds:
        parts.append("## Thresholds")
        parts.append("As they are unless a run file says otherwise, under `thresholds:`.")
        parts.append("\n".join(f"- `{name.replace('_', '-')}`: {value:g}" for name, value in check.thresholds.items()))
    if check.id in NONE_HERE:
        example = f"None was made: {NONE_HERE[check.id]}."
    if example:
        parts += [EXAMPLE, example]
    return "\n\n".join(parts) + "\n"


def _sections(check: Check) -> Iterator[str]:
    """The docstring's headings and their texts, as Markdown; its first sentence is the check's title already."""
    for heading, body in documentation.read(check.documentation).sections.items():
        yield f"## {heading}"
        yield _escaped(body) if heading != "References" else _linked(body)


def _linked(references: str) -> str:
    """References with links to those that have an address."""
    text = " ".join(references.split())
    parts, rest = [], text
    for written, address in documentation.addresses(text):
        before, _, rest = rest.partition(written)
        parts += [_escaped(before), f"[{written}]({address})" if written != address else f"<{address}>"]
    return "".join([*parts, _escaped(rest)])


def _escaped(text: str) -> str:
    """Docstrings are plain text: what Markdown would take for emphasis or a tag stands as it is."""
    text = re.sub(r"[*<]", r"\\\g<0>", text)
    return re.sub(r"(?<![A-Za-z0-9`])_|_(?![A-Za-z0-9`])", r"\\_", text)


def example_in(text: str) -> str:
    """The example that stands in a page."""
    return text.partition(f"{EXAMPLE}\n\n")[2].strip()


def index(checks: Iterable[Check]) -> str:
    """The page that lists the others."""
    parts = ["# The checks", f"*Made by `{COMMAND}`.*"]
    by_group = {group: [one for one in checks if one.group == group] for group in GROUPS}
    for group, ones in by_group.items():
        rows = "\n".join(f"- [{one.id}]({one.id}.md): {one.title}" for one in ones)
        parts += [f"## {group}", rows]
    return "\n\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """Every page by file name, with the examples that stand in the folder now."""
    made = {"README.md": index(built_in())}
    for check in built_in():
        path = FOLDER / f"{check.id}.md"
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        made[path.name] = page(check, example_in(old))
    return made


# --- examples --------------------------------------------------------------------------------------------------------


def examples(wanted: set[str]) -> Iterator[tuple[str, str]]:
    """(check, the body of its section) for the checks that a fault on one of the subjects WHERE shows."""
    from benchmarks import drill
    from gemma_doctor.faults import all_faults

    by_name = {one.name: one for one in drill.EVERY_FAMILY}
    left = set(wanted) - ELSEWHERE.keys() - NONE_HERE.keys()
    for check in sorted(wanted & ELSEWHERE.keys()):
        yield check, _elsewhere(check)
    for name in WHERE:
        faults = [one for one in all_faults().values() if one.caught_by in left and one.id not in drill.ELSEWHERE]
        if not faults:
            continue
        twin = drill.twin_of(by_name[name], "sdpa", [one.id for one in faults])
        with twin.patient.threads():
            for fault in faults:
                if fault.caught_by not in left:
                    continue
                said = _said_with(twin, fault.id)
                if said:
                    left.discard(fault.caught_by)
                    yield fault.caught_by, said


def _said_with(twin: HealthyTwin, name: str) -> str:
    """What a fault's check says of the subject with the fault in; "" if the subject cannot have it."""
    from gemma_doctor.drilled import Verdict
    from gemma_doctor.faults import all_faults

    fault = all_faults()[name]
    if twin.with_fault(fault).verdict is not Verdict.CAUGHT:
        return ""
    with fault.inject(twin.patient):
        report = twin.report(fault.routes)
    subject = str(report.subject["name"])
    is_folder = Path(subject).exists()
    if is_folder:  # made for the occasion
        report = replace(report, subject={**report.subject, "name": SMALL})
    who = "a small Gemma 3 with a tokenizer" if is_folder else f"a skeleton of `{subject}`"
    return f"On {who}, {_put_in(fault)}:\n\n```\n{block(report, fault.caught_by)}\n```"


def _elsewhere(check: str) -> str:
    """What one of ELSEWHERE says."""
    from gemma_doctor.diagnosis import chosen_checks, diagnose_patient
    from gemma_doctor.faults import all_faults
    from gemma_doctor.loading import admit
    from gemma_doctor.settings import Settings
    from gemma_doctor.subject import resolve
    from tests import tiny_gguf

    wanted, fault, where = ELSEWHERE[check]
    with tempfile.TemporaryDirectory() as folder:
        if wanted.get("subject") == "tiny.gguf":
            wanted = {**wanted, "subject": str(tiny_gguf.write(Path(folder) / "tiny.gguf"))}
        settings = Settings(**wanted, select=(check,))
        patient = admit(resolve(settings), settings, print)
        with all_faults()[fault].inject(patient) if fault else nullcontext():
            report = diagnose_patient(patient, settings, print, chosen_checks(settings), {}, 0.0)
    report = replace(report, subject={**report.subject, "name": Path(str(report.subject["name"])).name})
    said = where.format(transformers=report.environment["transformers"])
    said += f", {_put_in(all_faults()[fault])}" if fault else ""
    return f"{said}:\n\n```\n{block(report, check)}\n```"


def _put_in(fault: Fault) -> str:
    return f"with the fault `{fault.id}` put in ({fault.title[:1].lower()}{fault.title[1:].rstrip('.')})"


def block(report: Report, check: str) -> str:
    """The first finding of one check, as the text report has it."""
    from gemma_doctor.report import text

    result = next(one for one in report.results if one.check == check)
    first = max(result.findings, key=lambda one: one.severity)
    alone = replace(report, results=(replace(result, findings=(replace(first, follows_from=""),)),), suppressed=())
    lines = text.render(alone).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(("CAUSE", "warning", "note")))
    end = next((number for number in range(start, len(lines)) if not lines[number]), len(lines))
    return "\n".join(lines[start:end])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", nargs="*", metavar="CHECK", help="make these examples anew; all without a name")
    given = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    known = {one.id: one for one in built_in()}
    if given.examples is not None:
        for check, said in examples(set(given.examples) or set(known)):
            print(check, flush=True)
            (FOLDER / f"{check}.md").write_text(page(known[check], said), encoding="utf-8")
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    without = [one for one in known if EXAMPLE not in (FOLDER / f"{one}.md").read_text(encoding="utf-8")]
    print(f"{len(known)} pages; without an example: {', '.join(without) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
