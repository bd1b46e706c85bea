"""The report for people: causes first, then what follows from them, then what was looked at.

Facts that it shows, by mapping of the Report; those in brackets where they are there:
    subject: name, subject_source, family, layers, layer_kinds (one per examined layer, or None), window, weights
        ("real", "skeleton" or "none"), [cut (what a skeleton lacks), config_file (see config_lines.py)]
    environment: transformers, torch, [device, dtype, backend, seed]
    passes: [routes_in_use, depth, prompt_length, prompt_from, filled_from, generated, window, reduced_window,
        true_window_crossed, crossed_at, prompts (the other generations: name, from, prompt_length, generated,
        crossed_at, [way, ended_by]), long_text (length, from), ran (every pass: name, forwards, tokens)]
    timing: total and phases (seconds), [passes (seconds of each that ran), tokens_per_second, peak_memory_mb,
        attention_backend (see capture/kernels.py)]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gemma_doctor.finding import Finding, Report, Severity, counted
from gemma_doctor.report import verdict
from gemma_doctor.report.account import account, commands
from gemma_doctor.report.heading import heading, subject_name
from gemma_doctor.report.lines import BLANK, Line, draw
from gemma_doctor.report.ran import ran, took
from gemma_doctor.report.reading_path import not_evaluated, reading_path
from gemma_doctor.report.where import kinds_of, layers_in_words

STYLES = {
    "SICK": "bold red",
    "HEALTHY": "bold green",
    "WARNING": "bold yellow",
    "NO FAULT FOUND": "bold green",
    "NO NEW FAULT": "bold green",
}
SEVERITY_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def render(report: Report, width: int | None = None, color: bool = False, verbosity: int = 0) -> str:
    """The report as text.

    Args:
        report: what to show.
        width: columns of the terminal, None for a pipe (no wrapping).
        color: write ANSI colour codes.
        verbosity: -1 headline, causes and exit code; 0 the usual; 1 every check on its own line, reasons, all layers.
    """
    sections = _quiet(report) if verbosity < 0 else _full(report, width, verbosity)
    return draw(sections, width, color)


def findings(report: Report, some: Sequence[Finding]) -> str:
    """Some findings of a report, each in full, as a text for a file."""
    lines: list[Line] = []
    for one in some:
        word = "CAUSE" if one in report.causes else one.severity.word
        lines += [BLANK, *_block(word, one, report, verbosity=0)]
        if one.follows_from:
            lines.append(_fact("follows", f"from {one.follows_from}, in the same run: mend that first"))
    return draw(lines[1:], None, color=False)


def _quiet(report: Report) -> Iterator[Line]:
    if report.subject["subject_source"] == "default":
        yield Line(body=subject_name(report))
    yield _headline(report)
    for finding in report.deciding:
        word = "CAUSE" if finding.severity is Severity.ERROR else finding.severity.word
        yield from _block(word, finding, report, 0)
    yield _exit_line(report)


def _full(report: Report, width: int | None, verbosity: int) -> Iterator[Line]:
    yield from heading(report, verbosity)
    yield BLANK
    yield _headline(report)
    for cause in report.causes:
        yield BLANK
        yield from _block("CAUSE", cause, report, verbosity)
    yield from _consequences(report, verbosity)
    for finding in report.warnings:
        yield BLANK
        yield from _block("warning", finding, report, verbosity)
    yield from _notes(report, verbosity)
    yield from _suppressed(report, verbosity)
    if not report.only_notes:
        yield BLANK
    yield from reading_path(report, width, verbosity)
    yield from not_evaluated(report)
    if verbosity:
        yield from ran(report)
    if verbosity and report.timing.get("attention_backend"):
        yield Line("one attention call")
        yield from _kernel_times(report)
    if not report.only_notes:
        yield BLANK
    yield _exit_line(report)


def _headline(report: Report) -> Line:
    word = verdict.verdict(report)
    rest = verdict.headline(report).removeprefix(word)
    return Line(word, rest, style=STYLES.get(word, "bold magenta"), indent=2)


# --- findings --------------------------------------------------------------------------------------------------------


def _block(word: str, finding: Finding, report: Report, verbosity: int) -> Iterator[Line]:
    style = SEVERITY_STYLES[finding.severity]
    severity = f"   {finding.severity.word}" if word == "CAUSE" else ""
    yield Line(f"{word}  ", f"{finding.check}{severity}   {finding.title}", style=style, body_style="bold", indent=4)
    yield from _facts(finding, report, verbosity)
    if word == "CAUSE":
        yield _fact("more", " | ".join(commands(finding, report)))


def _notes(report: Report, verbosity: int) -> Iterator[Line]:
    """What is worth knowing: a line for each check, in full when asked to be verbose."""
    by_check: dict[str, list[Finding]] = {}
    for finding in report.notes:
        if verbosity:
            yield BLANK
            yield from _block("note", finding, report, verbosity)
        else:
            by_check.setdefault(finding.check, []).append(finding)
    if by_check and not report.only_notes:
        yield BLANK
    for check, notes in by_check.items():
        first = notes[0]
        said = f"{first.title}: {first.observed}"
        if len(notes) > 1:
            said = f"{counted(len(notes), 'note')} (-v): {'; '.join(note.title for note in notes)}"
        yield Line(f"note  {check}   ", said, style=SEVERITY_STYLES[Severity.NOTE], indent=4)


def _suppressed(report: Report, verbosity: int) -> Iterator[Line]:
    """What is known and does not count, a line for each; with what was measured when asked to be verbose."""
    if report.suppressed and not report.only_notes:
        yield BLANK
    for one in report.suppressed:
        severity = f"{one.finding.severity.word}, " if one.finding.severity is Severity.ERROR else ""
        said = f"{severity}{one.finding.title}: {one.reason} ({one.source})"
        yield Line(f"known  {one.finding.check}   ", said, style="dim", indent=4)
        if verbosity:
            yield from _facts(one.finding, report, verbosity)


def _facts(finding: Finding, report: Report, verbosity: int, margin: str = "  ") -> Iterator[Line]:
    for label, text in account(finding, report.subject, verbosity):
        yield _fact(label, text, margin)
        if label == "expected":
            yield from _drawn(finding, margin)


def _drawn(finding: Finding, margin: str) -> Iterator[Line]:
    if finding.strip:
        yield Line(margin, finding.strip.caption)
        yield _fact("expected", finding.strip.expected, margin + "  ")
        yield _fact("observed", finding.strip.observed, margin + "  ")
    if finding.figure:
        yield _fact("figure", finding.figure, margin)


def _fact(label: str, text: str, margin: str = "  ") -> Line:
    return Line(f"{margin}{label:<8}  ", text, style="dim")


def _consequences(report: Report, verbosity: int) -> Iterator[Line]:
    by_cause: dict[str, list[Finding]] = {}
    for finding in report.consequences:
        by_cause.setdefault(finding.follows_from, []).append(finding)
    for cause, findings in by_cause.items():
        yield BLANK
        yield Line(f"follows from {'it' if len(report.causes) == 1 and cause == report.causes[0].check else cause}")
        widest = max(len(finding.check) for finding in findings)
        for finding in findings:
            label = f"  {finding.check:<{widest}}  {finding.severity.word:<7}  "
            yield Line(label, finding.title, style=SEVERITY_STYLES[finding.severity])
            if verbosity:
                yield from _facts(finding, report, verbosity, margin="      ")


# --- times -----------------------------------------------------------------------------------------------------------


def _kernel_times(report: Report) -> Iterator[Line]:
    """What one attention call took, and what it would take otherwise, where that was measured."""
    for call in report.timing.get("attention_backend", ()):
        step = "decode step" if call["decode"] else f"prefill of {call['queries']:,}"
        said = [f"{step}, {call['keys']:,} keys: {call['ran']} {_milliseconds(call['seconds'])}"]
        if call["seconds_unrestricted"] is not None:
            said.append(f"{call['unrestricted']} {_milliseconds(call['seconds_unrestricted'])} if all were allowed")
        if call["seconds_without_mask"] is not None:
            said.append(f"{_milliseconds(call['seconds_without_mask'])} with is_causal instead of its mask")
        yield Line(f"  {layers_in_words(tuple(call['layers']), kinds_of(report.subject), 0)}  ", "; ".join(said), "dim")


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2g} ms"


# --- the last line ---------------------------------------------------------------------------------------------------


def _exit_line(report: Report) -> Line:
    said = f" ({verdict.exit_reason(report)})   {took(report)}"
    return Line(f"exit {report.exit_code}", said, style="bold", indent=2)
