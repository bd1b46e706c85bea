"""The report as JUnit XML: a suite for each layer of the reading path, a test case for each check.

A run whose exit code is 0 has neither failures nor errors, and any other has at least one: findings that count
(--fail-on) are failures, all others are output; a check that crashed is an error. Where the run ended with 2 or 130 for
another reason, that is the error of a test case of its own. Only the time of the whole differs from run to run.
"""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree

from gemma_doctor.finding import CheckResult, Finding, Outcome, Report
from gemma_doctor.report import verdict
from gemma_doctor.report.account import account
from gemma_doctor.report.escape import escape
from gemma_doctor.report.heading import filled_in, subject_name

NAME = "gemma-doctor"
FACTS = ("family", "weights", "transformers", "torch", "python", "device", "dtype", "backend", "seed")


def render(report: Report) -> str:
    """The XML document, pure ASCII, so that any stream can carry it; ends in a newline."""
    root = ElementTree.Element("testsuites", name=NAME)
    groups: dict[str, list[CheckResult]] = {}
    for result in report.results:
        groups.setdefault(result.group, []).append(result)
    for group, results in groups.items():
        suite = ElementTree.SubElement(root, "testsuite", name=f"{NAME}.{group}")
        _add_properties(suite, report)
        for result in results:
            _add_case(suite, result, report)
    if report.exit_code not in (0, 1) and not report.count(Outcome.ERROR):
        suite = ElementTree.SubElement(root, "testsuite", name=f"{NAME}.run")
        case = _case(suite, "run", "examination")
        _add(case, "error", verdict.exit_reason(report), f"exit {report.exit_code}", verdict.headline(report))
    _count(root)
    root.set("time", f"{report.timing.get('total', 0):.3f}")
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="us-ascii", xml_declaration=True)
    return document.decode("ascii") + "\n"


def _add_properties(suite: ElementTree.Element, report: Report) -> None:
    """What was examined, and with what."""
    facts = {**report.environment, **report.subject}
    properties = ElementTree.SubElement(suite, "properties")
    named = [(name, filled_in(facts, ((name, "{}"),))) for name in FACTS]
    for name, values in (("subject", [subject_name(report)]), *named):
        for value in values:
            ElementTree.SubElement(properties, "property", name=name, value=escape(value))


def _add_case(suite: ElementTree.Element, result: CheckResult, report: Report) -> None:
    """One check, with every finding of it, those that count first."""
    case = _case(suite, result.group, result.check)
    counting = [one for one in result.findings if report.fail_on is not None and one.severity >= report.fail_on]
    for finding in counting:
        _add(case, "failure", finding.title, finding.severity.word, _told(finding, report))
    if result.outcome is Outcome.ERROR:
        _add(case, "error", result.reason, "crash", "a fault of the check, not of the subject")
    elif result.outcome in (Outcome.SKIPPED, Outcome.NOT_APPLICABLE) and not counting:
        _add(case, "skipped", result.reason, result.outcome.value, "")
    rest = [one for one in result.findings if one not in counting]
    known = [one for one in report.suppressed if one.finding.check == result.check]
    said = [escape(result.examined.sentence) if result.examined and not result.reason else ""]
    said += [f"{one.severity.word}: {escape(one.title)}\n{_told(one, report)}" for one in rest]
    said += [f"suppressed ({one.source}): {escape(one.finding.title)}: {escape(one.reason)}" for one in known]
    ElementTree.SubElement(case, "system-out").text = "\n\n".join(part for part in said if part)


def _case(suite: ElementTree.Element, group: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=f"{NAME}.{group}", name=escape(name))


def _add(case: ElementTree.Element, outcome: str, message: str, kind: str, text: str) -> None:
    added = ElementTree.SubElement(case, outcome, message=escape(message), type=kind)
    added.text = text or None


def _told(finding: Finding, report: Report) -> str:
    facts = [f"{label}: {escape(text)}" for label, text in account(finding, report.subject)]
    return "\n".join([*facts, *([f"follows from: {finding.follows_from}"] if finding.follows_from else [])])


def _count(root: ElementTree.Element) -> None:
    """Cases by what they hold: in each suite, and in all of them."""
    total: Counter[str] = Counter()
    for suite in root:
        cases = suite.findall("testcase")
        held = Counter({"tests": len(cases)})
        for case in cases:
            held.update({child.tag for child in case} & {"failure", "error", "skipped"})
        counts = (("tests", "tests"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
        for attribute, tag in counts:
            suite.set(attribute, str(held[tag]))
        total += held
    for attribute, tag in (("tests", "tests"), ("failures", "failure"), ("errors", "error")):
        root.set(attribute, str(total[tag]))
