"""Which script reproduces a finding: chosen by what the finding is about, written by templates beside this file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemma_doctor.finding import Finding, Report
from gemma_doctor.redaction import Redactor
from gemma_doctor.reproduction import config_scripts, route_scripts, token_scripts
from gemma_doctor.reproduction.model import Model, NoScript
from gemma_doctor.reproduction.templates import rendered
from gemma_doctor.subject import Subject

IN_MASKS = ("mask-pattern", "all-masked-rows", "mask-dtype")
# What shows in the logits of plain generation as well as where the check looked.
IN_LOGITS = ("past-key-length", "visible-keys", "decode-parity", "cache-parity")
MOST = 3  # scripts that are worth a try
NEEDS_WEIGHTS = ("degeneration", "window-crossing", "recall", "stop-tokens", "float16-parity", "bfloat16-parity")


@dataclass(frozen=True)
class Script:
    """A script, ready to be run.

    Attributes:
        finding: that it reproduces.
        text: of the script.
        takes_folder: its argument is a folder with a tokenizer.
    """

    finding: Finding
    text: str
    takes_folder: bool = False


@dataclass(frozen=True)
class Written:
    """What came of a report.

    Attributes:
        scripts: at most `MOST`, in the order of the report: causes first.
        without: what no script was written for, and why.
    """

    scripts: tuple[Script, ...]
    without: tuple[tuple[Finding, str], ...]


def written(report: Report, subject: Subject, redact: Redactor) -> Written:
    """Scripts for the causes of a report, and for its warnings, as far as there are any.

    A cause that has none is taken by what follows from it: the same fault, seen where the library's user sees it.
    """
    scripts: list[Script] = []
    without: list[tuple[Finding, str]] = []
    for finding in (*report.causes, *report.warnings):
        if len(scripts) == MOST:
            break
        try:
            scripts.append(_of(finding, report, subject, redact))
        except NoScript as why:
            without.append((finding, str(why)))
    return Written(tuple(scripts), tuple(without))


def _of(cause: Finding, report: Report, subject: Subject, redact: Redactor) -> Script:
    follow = [one for one in report.consequences if one.follows_from == cause.check]
    why: NoScript | None = None
    model = Model(subject, str(report.environment.get("backend") or "eager"))
    for finding in (cause, *sorted(follow, key=_is_not_of_a_route)):
        try:
            template, values = _content(finding, model, redact)
        except NoScript as error:
            why = why or error
            continue
        about = redact(f"{cause.check}: {cause.title}. Found by gemma-doctor {report.version}.")
        text = rendered(template, about=about, **values)
        return Script(cause, text, takes_folder=template == token_scripts.TEMPLATE)
    assert why is not None
    raise why


def _is_not_of_a_route(finding: Finding) -> bool:
    return not finding.check.endswith("-parity")


def _content(finding: Finding, model: Model, redact: Redactor) -> tuple[str, dict[str, Any]]:
    """Template and values.

    Raises:
        NoScript: nothing short reproduces it.
    """
    check = finding.check
    if check in NEEDS_WEIGHTS:
        raise NoScript("it shows with the real weights, or against the noise of half precision")
    if check in IN_LOGITS or check.endswith("-parity") or (check == "long-generate" and ":" in finding.observed):
        return route_scripts.content(finding, model, redact)
    if check == "rope-theta":
        return config_scripts.rope(finding, model)
    if check in config_scripts.CHECKS:
        return config_scripts.content(finding, model)
    if check in IN_MASKS or check == "position-ids":
        return "handed.jinja", {"what": "positions" if check == "position-ids" else check, **model.values()}
    if check in token_scripts.CHECKS:
        return token_scripts.content(finding)
    raise NoScript(f"there is no script for findings of {check}")
