"""Two reports of `check`: what got worse, better, changed.

Findings are the same by their fingerprint, wherever they stand. Suppressed ones are known: they are never new. Nothing
of `timing` is compared, since it differs from run to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gemma_doctor.difference.changes import Change, Difference
from gemma_doctor.difference.report_document import KnownFinding, Looked, ReportDocument, read
from gemma_doctor.errors import DoctorError
from gemma_doctor.finding import Outcome, Severity, ranges

# Figures whose names begin so are worse when there is more of them; a share of the figure that releases may differ by.
MORE_IS_WORSE, JITTER = ("loss",), 0.01
WORSE, BETTER, CHANGED = "worse", "better", "changed"
NOT_THERE = "not examined"


class _Told(NamedTuple):
    """A change and the list that it belongs to."""

    list: str
    change: Change


def difference(before: Mapping[str, Any], after: Mapping[str, Any], before_name: str, after_name: str) -> Difference:
    """What became of the first report's subject in the second.

    Raises:
        DoctorError: a report lacks something that every report has, or the two have no check in common.
    """
    was, is_now = read(before, before_name), read(after, after_name)
    common = was.checks.keys() & is_now.checks.keys()
    if not common:
        raise DoctorError(f"{before_name} and {after_name} have no check in common", "run both with the same --select")
    told = [*_findings(was, is_now), *_checks(was, is_now), *_runs(was, is_now)]
    worse, better, changed = (
        tuple(one.change for one in told if one.list == name) for name in (WORSE, BETTER, CHANGED)
    )
    return Difference(
        of="reports",
        before=before_name,
        after=after_name,
        before_is=was.in_short,
        after_is=is_now.in_short,
        same_subject=was.examined == is_now.examined,
        compared=len(common),
        worse=worse,
        better=better,
        changed=changed,
    )


# --- findings --------------------------------------------------------------------------------------------------------


def _findings(was: ReportDocument, is_now: ReportDocument) -> Iterator[_Told]:
    for fingerprint, finding in is_now.findings.items():
        old = was.findings.get(fingerprint)
        if old is None:
            yield _new(finding, was)
        else:
            yield from _still_there(old, finding, comparable=was.layer_kinds == is_now.layer_kinds)
    for fingerprint, finding in was.findings.items():
        if fingerprint not in is_now.findings:
            yield _gone(finding, is_now)


def _new(finding: KnownFinding, was: ReportDocument) -> _Told:
    """A note is worth knowing and nothing worse; and what is suppressed is known to whoever suppressed it."""
    counts = finding.severity > Severity.NOTE and not finding.suppressed
    follows = f", follows from {finding.follows_from}" if finding.follows_from else ""
    known = f", suppressed ({finding.suppressed})" if finding.suppressed else ""
    looked = was.checks.get(finding.check)
    before = NOT_THERE if looked is None else "" if looked.examined else looked.in_words
    what = f"new {finding.severity.word}: {finding.title}{follows}{known}"
    return _Told(WORSE if counts else CHANGED, _change(finding, what, before, finding.observed))


def _gone(finding: KnownFinding, is_now: ReportDocument) -> _Told:
    """Gone is better only where somebody looked: whoever loses the window has no fault of it any more (n/a)."""
    looked = is_now.checks.get(finding.check)
    if looked is None or not looked.examined:
        where = NOT_THERE if looked is None else looked.in_words
        return _Told(CHANGED, _change(finding, f"not seen again: {finding.title}", finding.observed, where))
    counts = finding.severity > Severity.NOTE and not finding.suppressed
    what = f"gone, {finding.severity.word}: {finding.title}"
    return _Told(BETTER if counts else CHANGED, _change(finding, what, finding.observed, looked.outcome.value))


def _still_there(old: KnownFinding, new: KnownFinding, comparable: bool) -> Iterator[_Told]:
    """Layers are compared only where both runs examined the same ones."""
    known = bool(old.suppressed and new.suppressed)
    if old.severity != new.severity:
        rose = new.severity > old.severity
        what = f"{'more' if rose else 'less'} severe: {new.title}"
        told = CHANGED if known else WORSE if rose else BETTER
        yield _Told(told, _change(new, what, old.severity.word, new.severity.word))
    if comparable and old.layers and new.layers and old.layers != new.layers:
        more, fewer = set(new.layers) > set(old.layers), set(new.layers) < set(old.layers)
        what = f"{'in more' if more else 'in fewer' if fewer else 'in other'} layers: {new.title}"
        counts = new.severity > Severity.NOTE and not known
        told = WORSE if counts and more else BETTER if counts and fewer else CHANGED
        yield _Told(told, _change(new, what, *(", ".join(ranges(one.layers)) for one in (old, new))))
    for what, before, after in (
        ("suppressed", old.suppressed, new.suppressed),
        ("follows from", old.follows_from, new.follows_from),
        ("observed", old.observed, new.observed),
    ):
        if before != after:
            yield _Told(CHANGED, _change(new, f"{what}: {new.title}" if what != "observed" else what, before, after))


def _change(finding: KnownFinding, what: str, before: str, after: str) -> Change:
    return Change(finding.check, what, before, after, finding.fingerprint)


# --- checks ----------------------------------------------------------------------------------------------------------


def _checks(was: ReportDocument, is_now: ReportDocument) -> Iterator[_Told]:
    """Outcomes and figures. Whether a check passes or fails is told by its findings."""
    for name, new in is_now.checks.items():
        old = was.checks.get(name)
        if old is None:
            yield _Told(CHANGED, Change(name, "outcome", NOT_THERE, new.in_words))
            continue
        if old.rank != new.rank:
            told = WORSE if new.rank > old.rank else BETTER
            yield _Told(told, Change(name, "outcome", old.in_words, new.in_words))
        elif old.outcome != new.outcome and Outcome.NOT_APPLICABLE in (old.outcome, new.outcome):
            yield _Told(CHANGED, Change(name, "outcome", old.in_words, new.in_words))
        yield from _figures(name, old, new)
    for name, old in was.checks.items():
        if name not in is_now.checks:  # what looked and looks no more is worse, whoever left it out
            told = WORSE if old.outcome in (Outcome.PASS, Outcome.FAIL) else CHANGED
            yield _Told(told, Change(name, "outcome", old.in_words, NOT_THERE))


def _figures(check: str, old: Looked, new: Looked) -> Iterator[_Told]:
    for name, value in new.figures.items():
        before = old.figures.get(name)
        if before is None or before == value:
            continue
        beyond = abs(value - before) > JITTER * abs(before)
        told = CHANGED
        if name.startswith(MORE_IS_WORSE) and beyond:
            told = WORSE if value > before else BETTER
        yield _Told(told, Change(check, name, f"{before:.6g}", f"{value:.6g}"))


# --- the runs themselves ---------------------------------------------------------------------------------------------


def _runs(was: ReportDocument, is_now: ReportDocument) -> Iterator[_Told]:
    if is_now.interrupted and not was.interrupted:
        yield _Told(WORSE, Change("the run", "interrupted", "no", "yes"))
    before, after = _leaves(was.settings), _leaves(is_now.settings)
    for place in dict.fromkeys((*before, *after)):
        if before.get(place) != after.get(place):
            yield _Told(CHANGED, Change(place, "", before.get(place, ""), after.get(place, "")))
    for remark in was.remarks:
        if remark not in is_now.remarks:
            yield _Told(CHANGED, Change("remark", "", remark, ""))
    for remark in is_now.remarks:
        if remark not in was.remarks:
            yield _Told(CHANGED, Change("remark", "", "", remark))


def _leaves(value: Any, place: str = "") -> dict[str, str]:
    """Values by place, "environment.torch"; of lists of mappings only how many there are."""
    if isinstance(value, Mapping):
        inner = (_leaves(one, f"{place}.{key}".lstrip(".")) for key, one in value.items())
        return {key: said for leaves in inner for key, said in leaves.items()}
    if isinstance(value, list):
        return {place: _listed(value)}
    return {place: "-" if value is None else str(value)}


def _listed(items: Iterable[Any]) -> str:
    """Neighbours that are alike are counted: "5 x sliding_attention, full_attention"."""
    runs: list[tuple[str, int]] = []
    for item in items:
        said = str(item.get("name", "one") if isinstance(item, Mapping) else item)
        if runs and runs[-1][0] == said:
            runs[-1] = said, runs[-1][1] + 1
        else:
            runs.append((said, 1))
    return ", ".join(said if count == 1 else f"{count} x {said}" for said, count in runs) or "none"
