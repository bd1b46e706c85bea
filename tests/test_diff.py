"""diff: what got worse, better, changed between two reports, and what two documents of facts do not agree about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fake_reports import (
    ALL,
    CRASHED,
    EARLY_DROP,
    HEALTHY,
    INTERRUPTED,
    LATE,
    LOOP,
    RIGHT_PADDING,
    SHIFT,
    SICK,
    SKELETON,
    result,
    with_results,
)

from gemma_doctor.cli import main
from gemma_doctor.difference import difference
from gemma_doctor.difference.changes import Change, Difference
from gemma_doctor.errors import DoctorError
from gemma_doctor.finding import Examined, Finding, Location, Outcome, Report, Severity, Suppressed
from gemma_doctor.json_file import read_mapping
from gemma_doctor.layer_facts import layer_facts
from gemma_doctor.report import difference as rendered
from gemma_doctor.report import schemas
from gemma_doctor.report.json import render
from gemma_doctor.settings import resolve

VALIDATOR = jsonschema.Draft202012Validator(schemas.load("diff"))
CACHE = "past-key-length"


def failing(*findings: Finding) -> Report:
    """The healthy report with other findings of past-key-length."""
    return with_results(HEALTHY, result(CACHE, "cache", Outcome.FAIL, *findings, said="97 steps x 18 layers"))


DROPPED = failing(EARLY_DROP)


class Diff:
    """Two documents as files, and what became of the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, before: Report | dict[str, Any], after: Report | dict[str, Any]) -> Difference:
        found = difference(self.written("before", before), self.written("after", after))
        assert [error.message for error in VALIDATOR.iter_errors(json.loads(rendered.document(found)))] == []
        assert rendered.text(found).endswith(")\n")
        return found

    def written(self, name: str, content: Report | dict[str, Any] | str) -> str:
        path = self.folder / f"{name}.json"
        text = content if isinstance(content, str) else render(content) if isinstance(content, Report) else None
        path.write_text(json.dumps(content) if text is None else text, encoding="utf-8")
        return str(path)


@pytest.fixture
def diff(tmp_path: Path) -> Diff:
    return Diff(tmp_path)


def told(changes: Sequence[Change]) -> list[tuple[str, str]]:
    return [(one.about, one.what) for one in changes]


def only(changes: Sequence[Change]) -> Change:
    (change,) = changes
    return change


# --- the same and another --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_a_report_is_the_same_as_itself(name: str, diff: Diff) -> None:
    found = diff(ALL[name], ALL[name])
    assert (found.verdict, found.exit_code, found.same_subject) == ("THE SAME", 0, True)


def test_times_are_no_change(diff: Diff) -> None:
    slow = replace(HEALTHY, timing={**HEALTHY.timing, "total": 999.0, "tokens_per_second": 0.1})
    assert diff(HEALTHY, slow).verdict == "THE SAME"


def test_another_subject_is_said_in_the_first_line(diff: Diff) -> None:
    found = diff(HEALTHY, SKELETON)
    assert not found.same_subject
    assert rendered.text(found).startswith("DIFFERENT SUBJECTS  ")
    assert "SUBJECTS" not in rendered.text(diff(HEALTHY, SICK))


def test_the_same_name_with_other_weights_is_another_subject(diff: Diff) -> None:
    bare = replace(HEALTHY, subject={**HEALTHY.subject, "weights": "skeleton"})
    assert not diff(HEALTHY, bare).same_subject


# --- findings --------------------------------------------------------------------------------------------------------


def test_a_new_finding_is_worse_and_its_end_is_better(diff: Diff) -> None:
    found = diff(HEALTHY, DROPPED)
    change = only(found.worse)
    assert (found.verdict, found.exit_code) == ("WORSE", 1)
    assert (change.about, change.what) == (CACHE, "new error: sliding cache drops a key one step early")
    assert (change.before, change.after) == ("", "511 keys, the oldest is token 1")
    back = diff(DROPPED, HEALTHY)
    assert (back.verdict, back.exit_code, back.worse) == ("BETTER", 0, ())
    assert only(back.better).what == "gone, error: sliding cache drops a key one step early"


def test_a_new_warning_is_worse_and_a_new_note_is_not(diff: Diff) -> None:
    warned = with_results(HEALTHY, result("padding-side", "tokens", Outcome.FAIL, RIGHT_PADDING, said="3 rows"))
    noted = with_results(HEALTHY, result("position-ids", "positions", Outcome.PASS, SHIFT, said="97 steps"))
    assert only(diff(HEALTHY, warned).worse).about == "padding-side"
    found = diff(HEALTHY, noted)
    assert (found.verdict, told(found.changed)) == ("CHANGED", [("position-ids", f"new note: {SHIFT.title}")])


def test_numbers_in_a_title_do_not_make_another_finding(diff: Diff) -> None:
    other = replace(EARLY_DROP, title=EARLY_DROP.title.replace("one", "1"))
    jittered = replace(other, title=other.title.replace("1", "2"), observed="510 keys, the oldest is token 2")
    found = diff(failing(other), failing(jittered))
    assert found.verdict == "CHANGED"
    assert only(found.changed) == Change(
        CACHE, "observed", EARLY_DROP.observed, "510 keys, the oldest is token 2", only(found.changed).fingerprint
    )


def test_severity_that_rises_is_worse(diff: Diff) -> None:
    milder = failing(replace(EARLY_DROP, severity=Severity.WARNING))
    rise, fall = diff(milder, DROPPED), diff(DROPPED, milder)
    assert (only(rise.worse).before, only(rise.worse).after) == ("warning", "error")
    assert only(fall.better).what.startswith("less severe")
    assert fall.exit_code == 0


def test_more_layers_are_worse(diff: Diff) -> None:
    narrow = failing(replace(EARLY_DROP, where=replace(EARLY_DROP.where, layers=(0, 1))))
    more, fewer = diff(narrow, DROPPED), diff(DROPPED, narrow)
    assert (only(more.worse).before, only(more.worse).after) == ("0-1", "0-4, 6-10, 12-16")
    assert only(fewer.better).what.startswith("in fewer layers")


def test_layers_of_another_model_are_not_compared(diff: Diff) -> None:
    narrow = failing(replace(EARLY_DROP, where=replace(EARLY_DROP.where, layers=(0, 1))))
    smaller = replace(narrow, subject={**narrow.subject, "layers": 6, "layer_kinds": ("sliding_attention",) * 6})
    assert diff(smaller, DROPPED).worse == ()


def test_a_cause_that_became_a_consequence_is_a_change(diff: Diff) -> None:
    found = diff(DROPPED, failing(replace(EARLY_DROP, follows_from="position-ids")))
    assert found.verdict == "CHANGED"
    assert (only(found.changed).what, only(found.changed).after) == (
        f"follows from: {EARLY_DROP.title}",
        "position-ids",
    )


def test_what_a_new_finding_follows_from_is_said(diff: Diff) -> None:
    looping = with_results(DROPPED, result("long-generate", "generation", Outcome.FAIL, LOOP, said="96 tokens"))
    assert only(diff(DROPPED, looping).worse).what.endswith(", follows from past-key-length")


# --- what is known ---------------------------------------------------------------------------------------------------


def suppressed(report: Report, finding: Finding) -> Report:
    known = Suppressed(finding, "we know", "run file")
    return replace(with_results(report, result(CACHE, "cache", Outcome.FAIL, said="97 steps")), suppressed=(known,))


KNOWN = suppressed(HEALTHY, EARLY_DROP)


def test_a_suppressed_finding_is_not_new(diff: Diff) -> None:
    found = diff(HEALTHY, KNOWN)
    assert (found.verdict, found.exit_code) == ("CHANGED", 0)
    assert "suppressed (run file: we know)" in found.changed[0].what


def test_a_finding_that_was_suppressed_is_not_new_either(diff: Diff) -> None:
    assert diff(KNOWN, DROPPED).worse == ()
    assert diff(DROPPED, KNOWN).better == ()
    assert only(diff(DROPPED, KNOWN).changed).after == "run file: we know"


# --- checks ----------------------------------------------------------------------------------------------------------


def test_a_check_that_is_skipped_or_crashes_is_worse(diff: Diff) -> None:
    late, crashed = diff(HEALTHY, LATE), diff(HEALTHY, CRASHED)
    assert only(late.worse) == Change("long-generate", "outcome", "pass", "skipped: timed out after 10 s")
    assert only(crashed.worse).after == "error: ZeroDivisionError: division by zero"
    assert only(diff(LATE, HEALTHY).better).about == "long-generate"


def test_what_nobody_looked_for_any_more_is_not_better(diff: Diff) -> None:
    for outcome in (Outcome.SKIPPED, Outcome.NOT_APPLICABLE):
        blind = with_results(HEALTHY, result(CACHE, "cache", outcome, said="no window"))
        found = diff(DROPPED, blind)
        assert found.better == ()
        assert f"not seen again: {EARLY_DROP.title}" in [one.what for one in found.changed]


def test_a_check_that_looked_and_is_not_there_any_more_is_worse(diff: Diff) -> None:
    fewer = replace(HEALTHY, results=HEALTHY.results[1:])
    found = diff(HEALTHY, fewer)
    assert only(found.worse) == Change("sliding-window", "outcome", "pass", "not examined")
    assert only(diff(fewer, HEALTHY).changed).before == "not examined"


def test_a_finding_of_a_check_that_was_not_run_before_says_so(diff: Diff) -> None:
    fewer = replace(HEALTHY, results=tuple(one for one in HEALTHY.results if one.check != CACHE))
    assert only(diff(fewer, DROPPED).worse).before == "not examined"


def test_an_interrupted_run_is_worse(diff: Diff) -> None:
    assert ("the run", "interrupted") in told(diff(HEALTHY, INTERRUPTED).worse)


# --- figures, settings -----------------------------------------------------------------------------------------------


def measured(**figures: float) -> Report:
    passed = result("long-generate", "generation", Outcome.PASS, said="96 tokens")
    return with_results(HEALTHY, replace(passed, examined=Examined(3, "96 tokens", figures=figures)))


@pytest.mark.parametrize(
    ("figure", "after", "verdict"),
    [
        ("loss_after_edge", 3.2, "WORSE"),
        ("loss_after_edge", 2.8, "BETTER"),
        ("loss_after_edge", 3.003, "CHANGED"),
        ("tokens", 4.0, "CHANGED"),
        ("loss_after_edge", 3.0, "THE SAME"),
    ],
)
def test_a_loss_that_rises_is_worse(figure: str, after: float, verdict: str, diff: Diff) -> None:
    assert diff(measured(**{figure: 3.0}), measured(**{figure: after})).verdict == verdict


def test_what_the_run_was_is_a_change(diff: Diff) -> None:
    other = replace(
        HEALTHY,
        subject={**HEALTHY.subject, "window": 256},
        environment={**HEALTHY.environment, "transformers": "5.24.0"},
        fail_on=None,
        remarks=("as the run file says: bos-token counts as note",),
    )
    changed = {one.about: (one.before, one.after) for one in diff(HEALTHY, other).changed}
    assert changed == {
        "fail_on": ("error", "never"),
        "subject.window": ("512", "256"),
        "environment.transformers": ("4.51.3", "5.24.0"),
        "remark": ("", "as the run file says: bos-token counts as note"),
    }


def test_layer_kinds_are_told_in_short(diff: Diff) -> None:
    other = replace(HEALTHY, subject={**HEALTHY.subject, "layer_kinds": ("full_attention",) * 18})
    assert only(diff(HEALTHY, other).changed).after == "18 x full_attention"


# --- facts -----------------------------------------------------------------------------------------------------------

OURS = json.loads(json.dumps(layer_facts(resolve({"subject": "gemma-3-270m"}, {}), "published")))


def by_hand(*layers: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"schema_version": 1, "document": "gemma-doctor facts", "layers": [*layers], **more}


def whole(first: dict[str, Any], **more: Any) -> dict[str, Any]:
    """All 18 layers, with facts of the first alone."""
    return by_hand({"index": 0, **first}, *({"index": index} for index in range(1, 18)), **more)


def test_layers_that_differ_alike_are_told_together(diff: Diff) -> None:
    theirs = json.loads(json.dumps(OURS).replace('"window": 512', '"window": 511'))
    found = diff(OURS, theirs)
    assert (found.verdict, found.exit_code) == ("DIFFERENT", 1)
    assert only(found.differs) == Change("layers 0-4, 6-10, 12-16", "window", "512", "511")


def test_only_what_both_name_is_compared(diff: Diff) -> None:
    theirs = whole({"window": 512})
    theirs["layers"][5]["window"] = None
    found = diff(OURS, theirs)
    assert (found.verdict, found.exit_code, found.compared) == ("THE SAME", 0, 2)
    assert any(said.startswith("layers 0-17: kind, rope_theta") for said in found.not_compared)


def test_layers_that_were_lost_on_the_way_differ(diff: Diff) -> None:
    found = diff(OURS, by_hand({"index": 0, "window": 512}, {"index": 5, "window": None}))
    assert only(found.differs) == Change("layers", "which there are", "0-17", "0, 5")
    assert found.exit_code == 1


def test_null_is_not_the_same_as_left_out(diff: Diff) -> None:
    assert only(diff(OURS, whole({"window": None})).differs).after == "null"


def test_numbers_are_compared_as_float32_has_them(diff: Diff) -> None:
    theirs = whole({"rope_theta": 10000}, model={"norm_eps": 9.999999974752427e-07})
    assert diff(OURS, theirs).verdict == "THE SAME"


def test_rotary_parameters_are_compared_one_by_one(diff: Diff) -> None:
    first = by_hand({"index": 0, "rope_parameters": {"factor": 8.0, "beta_fast": 32}})
    second = by_hand({"index": 0, "rope_parameters": {"factor": 4.0}})
    found = diff(first, second)
    assert only(found.differs).what == "rope_parameters.factor"
    assert any("beta_fast" in said for said in found.not_compared)


def test_one_id_is_a_list_of_one(diff: Diff) -> None:
    theirs = whole({"window": 512}, model={"eos_token_id": [1], "bos_token_id": 2})
    assert diff(OURS, theirs).verdict == "THE SAME"


# --- what cannot be compared -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("hello", "not JSON"),
        ("[1, 2]", "no mapping, but a list"),
        ("{}", "neither a report of check nor a document of facts"),
        (json.dumps({**json.loads(render(HEALTHY)), "schema_version": 2}), "a report of check of schema 2"),
        (json.dumps({"schema_version": 1, "gemma_doctor": "0.1.0", "results": []}), "lacks 'subject'"),
        (render(HEALTHY).replace('"outcome": "pass"', '"outcome": "fine"'), "holds something else"),
        (render(SICK).replace('"severity": "error"', '"severity": "fatal"'), "no whole report"),
        (render(HEALTHY).replace('"sliding-window"', '"another"').replace('"results": [', '"results": 3, "x": ['), ""),
        (json.dumps(by_hand({"index": 0, "window": 512})), "is a document of facts"),
    ],
)
def test_what_is_no_report_is_one_line(
    content: str, message: str, diff: Diff, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = diff.written("before", HEALTHY), diff.written("after", content)
    assert main(["diff", *paths]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 2
    assert message in shown.err


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (by_hand({"index": 0, "windw": 3}), "layer 0: unknown key 'windw'; did you mean window?"),
        (by_hand({"window": 3}), "without a usable index"),
        (by_hand({"index": 0}, {"index": 0}), "layer 0 stands there twice"),
        (by_hand({"index": 0}, model={"eps": 1}), "model: unknown key 'eps'"),
        (by_hand({"index": 0}, comment="x"), "unknown key 'comment'"),
        (by_hand(), "has no layers"),
        (by_hand({"index": 0, "rope_parameters": 3}), "rope_parameters is no mapping"),
        (by_hand({"index": 99, "window": 3}), "say nothing about the same layer"),
        (whole({}, model={"family": "gemma3_text"}), "say nothing about the same layer"),
    ],
)
def test_facts_with_a_slip_are_refused(document: dict[str, Any], message: str, diff: Diff) -> None:
    with pytest.raises(DoctorError) as caught:
        diff(OURS, document)
    assert message in caught.value.message


def test_reports_without_a_common_check_say_nothing(diff: Diff) -> None:
    first, second = (replace(HEALTHY, results=HEALTHY.results[part]) for part in (slice(0, 2), slice(2, 4)))
    with pytest.raises(DoctorError, match="no check in common"):
        diff(first, second)


def test_a_file_that_is_not_there(diff: Diff, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", diff.written("before", HEALTHY), "nowhere.json"]) == 2
    assert "nowhere.json: cannot be read" in capsys.readouterr().err


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after", "code"), [(HEALTHY, SICK, 1), (SICK, HEALTHY, 0), (HEALTHY, HEALTHY, 0)])
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_exit_code_is_the_same_in_both_forms(
    before: Report, after: Report, code: int, form: str, diff: Diff, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = diff.written("before", before), diff.written("after", after)
    assert main(["diff", *paths, "--format", form]) == code
    out = capsys.readouterr().out
    assert json.loads(out)["exit_code"] == code if form == "json" else f"exit {code} (" in out


def test_it_can_be_written_to_a_file(diff: Diff, capsys: pytest.CaptureFixture[str]) -> None:
    paths = diff.written("before", HEALTHY), diff.written("after", SICK)
    target = diff.folder / "diff.txt"
    assert main(["diff", *paths, "--output", str(target)]) == 1
    assert capsys.readouterr().out == ""
    assert target.read_text(encoding="utf-8").startswith("before  ")


def test_colours_only_where_they_are_wanted(diff: Diff, capsys: pytest.CaptureFixture[str]) -> None:
    paths = diff.written("before", HEALTHY), diff.written("after", SICK)
    main(["diff", *paths])
    assert "\x1b" not in capsys.readouterr().out
    main(["diff", *paths, "--color", "always"])
    assert "\x1b[1;31mWORSE" in capsys.readouterr().out


def test_hostile_text_cannot_act(diff: Diff) -> None:
    evil = "\x1b[31m\u202e\nfake line"
    sick = failing(replace(EARLY_DROP, title=evil, observed=evil, check=evil))
    sick = replace(sick, subject={**sick.subject, "name": evil, evil: evil}, remarks=(evil,))
    found = diff(HEALTHY, sick)
    text = rendered.text(found)
    assert "\x1b" not in text and "\u202e" not in text
    assert not any(line.startswith("fake line") for line in text.splitlines())
    assert rendered.document(found).isascii()


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(DoctorError) as caught:
        read_mapping(Path("/dev/zero"), "name a report")
    assert "longer than" in caught.value.message


def test_of_two_findings_alike_one_that_is_mended_is_better(diff: Diff) -> None:
    """Which of them is left must not look as if the other had moved to its layer."""
    two = tuple(replace(EARLY_DROP, where=Location(layers=layers)) for layers in ((0, 1), (5,)))
    both = with_results(HEALTHY, result(CACHE, "cache", Outcome.FAIL, *two))
    left = with_results(HEALTHY, result(CACHE, "cache", Outcome.FAIL, two[1]))
    found = diff(both, left)
    assert (found.verdict, found.worse) == ("BETTER", ())
