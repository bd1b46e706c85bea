"""From checks to a report: outcomes, causes and consequences, exit codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gemma_doctor.check import Check, CouldNotLook, NotApplicable, needs_of
from gemma_doctor.diagnosis import chosen_checks, exit_code
from gemma_doctor.errors import DoctorError, TimedOut
from gemma_doctor.evidence import Config, PaddedBatch, Trace
from gemma_doctor.examine import examine, run_check
from gemma_doctor.finding import CheckResult, Examined, Finding, Location, Outcome, Report, Severity
from gemma_doctor.settings import Settings
from gemma_doctor.triage import triage


def finding(title: str = "sick", severity: Severity = Severity.ERROR, **fields: Any) -> Finding:
    return Finding(title=title, severity=severity, observed="1", expected="2", do="mend it", **fields)


class Source:
    """Gives any object for any evidence, or refuses everything but the configuration."""

    def __init__(self, refuse: Exception | None = None) -> None:
        self.refuse = refuse

    def close(self, reason: str) -> None:
        self.refuse = CouldNotLook(reason)

    def get(self, kind: type, of: str = "") -> Any:
        if kind is Config or self.refuse is None:
            return object()
        raise self.refuse


def check_of(work: Callable[[], Iterator[Any]], **changes: Any) -> Check:
    def example(trace: Trace) -> Iterator[Finding | Examined]:
        return work()

    return Check(**({"id": "example", "group": "mask", "function": example, "needs": needs_of(example)} | changes))


def saying(*items: Any) -> Callable[[], Iterator[Any]]:
    return lambda: iter(items)


def raising(error: BaseException) -> Callable[[], Iterator[Any]]:
    def work() -> Iterator[Any]:
        raise error
        yield

    return work


@pytest.mark.parametrize(
    ("work", "outcome"),
    [
        (saying(Examined(3, "three")), Outcome.PASS),
        (saying(finding(), Examined(3, "three")), Outcome.FAIL),
        (saying(finding(severity=Severity.WARNING), Examined(1, "one")), Outcome.FAIL),
        (saying(finding(severity=Severity.NOTE), Examined(1, "one")), Outcome.PASS),
        (saying(Examined(0, "nothing there")), Outcome.SKIPPED),
        (saying(), Outcome.SKIPPED),
        (raising(NotApplicable("no window")), Outcome.NOT_APPLICABLE),
        (raising(CouldNotLook("no GPU")), Outcome.SKIPPED),
        (raising(ZeroDivisionError("oops")), Outcome.ERROR),
    ],
)
def test_outcomes(work: Callable[[], Iterator[Any]], outcome: Outcome) -> None:
    assert run_check(check_of(work), Source()).outcome is outcome


@pytest.mark.parametrize(
    ("refusal", "outcome"), [(NotApplicable("x"), Outcome.NOT_APPLICABLE), (CouldNotLook("y"), Outcome.SKIPPED)]
)
def test_a_check_without_its_evidence(refusal: Exception, outcome: Outcome) -> None:
    result = run_check(check_of(saying(Examined(1, "one"))), Source(refusal))
    assert (result.outcome, result.reason) == (outcome, str(refusal))


def test_optional_evidence_may_be_missing() -> None:
    given: list[Any] = []

    def example(config: Config, batch: PaddedBatch | None) -> Iterator[Finding | Examined]:
        given.append(batch)
        yield Examined(1, "one")

    one = Check("example", "config", example, needs_of(example))
    assert run_check(one, Source(CouldNotLook("no"))).outcome is Outcome.PASS
    assert given == [None]


def test_a_parameter_that_is_no_evidence_is_refused() -> None:
    def example(anything: int) -> Iterator[Finding | Examined]:
        yield Examined(anything, "")

    with pytest.raises(TypeError, match="no evidence type"):
        needs_of(example)


@pytest.mark.parametrize(
    ("error", "word"), [(KeyboardInterrupt(), "interrupted"), (TimedOut(3), "timed out after 3 s")]
)
def test_after_a_stop_checks_get_what_is_known(error: BaseException, word: str) -> None:
    def static(config: Config) -> Iterator[Finding | Examined]:
        yield Examined(1, "one")

    checks = [
        check_of(saying(finding(), Examined(1, "one")), id="first"),
        check_of(raising(error), id="second"),
        check_of(saying(Examined(1, "one")), id="third"),
        Check("fourth", "config", static, needs_of(static)),
    ]
    results, stopped = examine(checks, Source())
    assert stopped is error
    assert [one.outcome for one in results] == [Outcome.FAIL, Outcome.SKIPPED, Outcome.SKIPPED, Outcome.PASS]
    assert results[2].reason == word


# --- causes and consequences -----------------------------------------------------------------------------------------

EARLY = check_of(saying(), id="early", group="config")
CACHE = check_of(saying(), id="cache-length", group="cache", decides_before="positions")
POSITIONS = check_of(saying(), id="positions", group="positions")
MASK = check_of(saying(), id="mask", group="mask")
LATE = check_of(saying(), id="late", group="generation")
CHAIN = (EARLY, POSITIONS, MASK, CACHE, LATE)


def triaged(*findings: Finding) -> dict[str, str]:
    """Check -> the check that its finding follows from."""
    results = [
        CheckResult(check=one.check, group="", outcome=Outcome.FAIL, findings=(one,), examined=Examined(1, ""))
        for one in findings
    ]
    return {one.check: one.findings[0].follows_from for one in triage(results, CHAIN)}


def seen(check: str, layers: tuple[int, ...] = (), passes: tuple[str, ...] = ("p",), **more: Any) -> Finding:
    return finding(check=check, where=Location(layers, passes), **more)


def test_an_earlier_gate_explains_a_later_one() -> None:
    assert triaged(seen("mask", (0, 1)), seen("late")) == {"mask": "", "late": "mask"}


def test_the_earliest_gate_is_the_cause() -> None:
    assert triaged(seen("early", passes=()), seen("mask"), seen("late"))["late"] == "early"


def test_the_length_of_a_cache_decides_positions_and_masks() -> None:
    found = triaged(seen("cache-length"), seen("positions"), seen("mask", (3,)))
    assert found == {"cache-length": "", "positions": "cache-length", "mask": "cache-length"}


def test_other_layers_and_other_passes_are_not_explained() -> None:
    assert triaged(seen("positions", (0,)), seen("mask", (1,)))["mask"] == ""
    assert triaged(seen("positions", passes=("a",)), seen("mask", passes=("b",)))["mask"] == ""


def test_what_stands_in_a_setting_follows_from_nothing() -> None:
    assert triaged(seen("early", passes=()), seen("late", standing=True))["late"] == ""
    assert triaged(seen("early", passes=()), seen("late", passes=()))["late"] == ""


def test_a_finding_may_be_seen_at_a_later_gate_than_its_checks() -> None:
    assert triaged(seen("early", gate="mask"), seen("positions"))["early"] == "positions"
    assert triaged(seen("early", gate="mask"), seen("mask"))["early"] == "mask"


def test_warnings_explain_nothing_and_are_not_explained() -> None:
    assert triaged(seen("mask", severity=Severity.WARNING), seen("late"))["late"] == ""
    assert triaged(seen("mask"), seen("late", severity=Severity.WARNING))["late"] == ""


# --- exit codes ------------------------------------------------------------------------------------------------------

ALL = chosen_checks(Settings())
NAMES = {"pass": "sliding-window", "fail": "position-ids", "skip": "long-generate", "error": "mask-dtype"}


def report(*kinds: str, severity: Severity = Severity.ERROR) -> Report:
    outcomes = {"pass": Outcome.PASS, "fail": Outcome.FAIL, "skip": Outcome.SKIPPED, "error": Outcome.ERROR}
    results = tuple(
        CheckResult(
            check=NAMES[kind],
            group="",
            outcome=outcomes[kind],
            findings=(finding(severity=severity),) if kind == "fail" else (),
        )
        for kind in kinds
    )
    return Report(
        version="0",
        subject={},
        environment={},
        passes={},
        remarks=(),
        results=results,
        fail_on=Severity.ERROR,
        exit_code=0,
    )


@pytest.mark.parametrize(
    ("kinds", "settings", "code"),
    [
        (("pass",), {}, 0),
        (("pass", "skip"), {}, 0),
        (("pass", "skip"), {"strict_skips": True}, 2),
        (("pass", "skip"), {"require": ("long-generate",)}, 2),
        (("pass", "skip"), {"require": ("sliding-window",)}, 0),
        (("pass", "skip"), {"require": ("generation",)}, 2),
        (("pass", "fail"), {}, 1),
        (("pass", "fail"), {"fail_on": None}, 0),
        (("fail", "error"), {}, 2),
        (("skip",), {}, 2),
    ],
)
def test_exit_codes(kinds: tuple[str, ...], settings: dict[str, Any], code: int) -> None:
    assert exit_code(report(*kinds), Settings(**settings), ALL, None) == code


@pytest.mark.parametrize(("fail_on", "code"), [(Severity.ERROR, 0), (Severity.WARNING, 1), (Severity.NOTE, 1)])
def test_fail_on(fail_on: Severity, code: int) -> None:
    assert exit_code(report("fail", severity=Severity.WARNING), Settings(fail_on=fail_on), ALL, None) == code


def test_stops_take_precedence() -> None:
    assert exit_code(report("fail", "error"), Settings(), ALL, KeyboardInterrupt()) == 130
    assert exit_code(report("pass"), Settings(), ALL, TimedOut(1)) == 2


# --- selection -------------------------------------------------------------------------------------------------------


def test_select_and_ignore_take_ids_and_groups() -> None:
    chosen = chosen_checks(Settings(select=("mask", "rope-theta"), ignore=("mask-dtype",)))
    assert {one.group for one in chosen if one.id != "rope-theta"} == {"mask"}
    assert {"all-masked-rows", "mask-shape", "rope-theta"} < {one.id for one in chosen}
    assert "mask-dtype" not in {one.id for one in chosen}


def test_static_runs_what_the_file_is_enough_for() -> None:
    assert all(one.is_static for one in chosen_checks(Settings(static=True)))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"select": ("mask-dtyp",)}, "did you mean mask-dtype"),
        ({"ignore": ("mosk",)}, "did you mean mask"),
        ({"require": ("nothing-like-it",)}, "--require"),
        ({"select": ("mask",), "ignore": ("mask",)}, "no check is left"),
        ({"select": ("mask",), "require": ("position-ids",)}, "not selected"),
    ],
)
def test_bad_selections(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(DoctorError, match=words):
        chosen_checks(Settings(**settings))


def test_the_count_of_a_report() -> None:
    one = report("pass", "skip", "fail")
    assert (one.count(Outcome.PASS), len(one.causes), one.consequences) == (1, 1, ())
    explained = replace(one.results[2], findings=(finding(follows_from="sliding-window"),))
    assert len(replace(one, results=(explained,)).consequences) == 1
