"""Baselines: what is written, what is read, which findings they know, and which figures got worse."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pytest
from fake_reports import EARLY_DROP, HEALTHY, LOOP, RIGHT_PADDING, SHIFT, SICK, result, with_results

from gemma_doctor import baseline_file, cli, presets
from gemma_doctor.baseline import KNOWN, Baseline, accepted, compare, conditions, difference, require_same_subject
from gemma_doctor.baseline_file import baseline_of, measured_figures, read
from gemma_doctor.capture import good_run as capture
from gemma_doctor.check import CouldNotLook, NotApplicable
from gemma_doctor.checks.generation.regression import regression
from gemma_doctor.checks.generation.window_crossing import window_crossing
from gemma_doctor.diagnosis import chosen_checks
from gemma_doctor.drill import HealthyTwin
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import FIGURES, LONG_TEXT, LOSS, GoodRun, RecordedFigure, frozen
from gemma_doctor.finding import CheckResult, Examined, Finding, Location, Outcome, Report, Severity
from gemma_doctor.known import set_aside
from gemma_doctor.registry import built_in
from gemma_doctor.report import schemas, verdict
from gemma_doctor.settings import Settings
from gemma_doctor.suppression import Suppression
from gemma_doctor.testing import long_text, run_check
from gemma_doctor.triage import triage

SCHEMA = schemas.load("baseline")
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
TODAY = datetime.date(2026, 12, 1)
LOSSES = {"loss_before_the_edge": 4.31004, "loss_after_the_edge": 3.6254}
RAN = ({"name": "crossing", "forwards": 9, "tokens": 96}, {"name": "prompt 2W", "forwards": 1, "tokens": 1024})


def measured(report: Report, losses: dict[str, float] | None = None, **timing: float) -> Report:
    """The report of a run with real weights that measured figures, and ran two passes."""
    crossed = result("window-crossing", "generation", Outcome.PASS)
    crossed = replace(crossed, examined=Examined(3, "loss", figures=LOSSES if losses is None else losses))
    rates = {"tokens_per_second": 14.013, "peak_memory_mb": 2104.95} | timing
    passes = {**report.passes, "ran": RAN, "long_text": {"length": 1536, "from": "docstrings"}}
    return with_results(report, crossed, timing={**report.timing, **rates}, passes=passes)


def updated(report: Report, old: Baseline | None = None, *entries: Suppression) -> str:
    """What a run with --update-baseline writes."""
    compared = accepted(old, report.results)
    results, known, _ = set_aside(report.results, entries, compared, TODAY)
    return baseline_file.render(replace(report, results=results, suppressed=known), old)


def written(report: Report, folder: Path, old: Baseline | None = None) -> Baseline:
    path = folder / "baseline.json"
    path.write_text(updated(report, old), encoding="utf-8")
    return read(str(path))


def held(known: Baseline, *results: CheckResult) -> tuple[list[Finding], list[str], list[str]]:
    """What counts, why the others do not, and what is said."""
    kept, suppressed, remarks = set_aside(results, (), compare(known, results), TODAY)
    return [one for each in kept for one in each.findings], [one.reason for one in suppressed], list(remarks)


def failing(*findings: Finding) -> CheckResult:
    return result(findings[0].check, "cache", Outcome.FAIL, *findings)


def wider(finding: Finding, **where: Any) -> Finding:
    return replace(finding, where=replace(finding.where, **where))


# --- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("report", [measured(SICK), measured(HEALTHY), HEALTHY], ids=["sick", "figures", "healthy"])
def test_what_is_written_fits_the_schema_and_is_read_again(report: Report, tmp_path: Path) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(json.loads(updated(report)))] == []
    assert written(report, tmp_path, written(report, tmp_path)) == written(report, tmp_path)


def test_the_schema_is_one_and_knows_every_figure() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert list(SCHEMA["properties"]["figures"]["properties"]) == [*FIGURES]


def test_findings_are_written_by_fingerprint_with_their_layers_as_ranges(tmp_path: Path) -> None:
    document = json.loads(updated(measured(SICK)))
    (one,) = (one for one in document["findings"].values() if one["check"] == "past-key-length")
    assert one == {
        "check": "past-key-length",
        "title": EARLY_DROP.title,
        "severity": "error",
        "layers": "0-4, 6-10, 12-16",
        "passes": ["crossing"],
    }
    known = written(measured(SICK), tmp_path)
    (read_again,) = (one for one in known.findings.values() if one.check == "past-key-length")
    assert read_again.layers == EARLY_DROP.where.layers


def test_the_order_of_checks_is_no_part_of_the_file() -> None:
    report = measured(SICK)
    assert updated(replace(report, results=report.results[::-1])) == updated(report)


def test_figures_are_written_with_tolerances_that_are_named() -> None:
    assert json.loads(updated(measured(HEALTHY)))["figures"] == {
        "loss_before_the_edge": {"value": 4.31, "absolute_tolerance": 0.02},
        "loss_after_the_edge": {"value": 3.6254, "absolute_tolerance": 0.02},
        "tokens_per_second": {"value": 14.01, "relative_tolerance": 0.5},
        "peak_memory_mb": {"value": 2105.0, "relative_tolerance": 0.25},
    }


def test_a_skeleton_has_no_figures() -> None:
    report = measured(HEALTHY)
    assert measured_figures(replace(report, subject={**report.subject, "weights": "skeleton"})) == {}


def test_what_the_run_file_suppresses_is_not_written_as_well() -> None:
    document = json.loads(updated(measured(SICK), None, Suppression("padding-side", "by hand")))
    assert "padding-side" not in {one["check"] for one in document["findings"].values()}


def edited(folder: Path, change: Callable[[Any], object]) -> Baseline:
    path = folder / "baseline.json"
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return read(str(path))


def test_reasons_and_tolerances_that_people_wrote_stay(tmp_path: Path) -> None:
    def change(document: Any) -> None:
        for one in document["findings"].values():
            one["reason"] = f"we know {one['check']}"
        document["figures"]["loss_before_the_edge"] = {"value": 9, "relative_tolerance": 0.1}

    written(measured(SICK), tmp_path)
    old = edited(tmp_path, change)
    new = written(measured(SICK), tmp_path, old)
    assert {one.reason for one in new.findings.values()} == {f"we know {one.check}" for one in old.findings.values()}
    assert new.figures["loss_before_the_edge"] == RecordedFigure(4.31, None, 0.1)
    assert "we know padding-side" in held(new, failing(RIGHT_PADDING))[1]


def test_what_was_not_looked_at_this_time_stays(tmp_path: Path) -> None:
    old = written(measured(SICK), tmp_path)
    tokens = tuple(one for one in SICK.results if one.group == "tokens")
    new = written(replace(SICK, results=tokens, passes={}, timing={}), tmp_path, old)
    assert new.findings == old.findings
    assert new.figures == old.figures


def test_what_was_looked_at_and_not_found_is_forgotten(tmp_path: Path) -> None:
    assert written(measured(HEALTHY), tmp_path, written(measured(SICK), tmp_path)).findings == {}


def test_a_figure_of_other_conditions_does_not_stay(tmp_path: Path) -> None:
    old = written(measured(HEALTHY), tmp_path)
    other = replace(HEALTHY, environment={**HEALTHY.environment, "torch": "9.0"}, timing={"total": 1.0})
    assert [*written(measured(other), tmp_path, old).figures] == [*FIGURES][:2] + [*FIGURES][3:]
    assert [*written(other, tmp_path, old).figures] == [*FIGURES][:2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "no mapping"),
        ('{"model_type": "gemma3_text"}', "is no baseline"),
        ('{"schema_version": 2, "findings": {}}', "schema_version 2"),
        ('{"schema_version": 1, "findings": []}', "findings is no mapping"),
        ('{"schema_version": 1, "findings": {"a": {"severity": "bad"}}}', "the severity 'bad'"),
        ('{"schema_version": 1, "findings": {"a": {"severity": "note", "layers": "0-x"}}}', "layers are '0-x'"),
        ('{"schema_version": 1, "findings": {}, "figures": {"speed": {}}}', "no figure 'speed'"),
        ('{"schema_version": 1, "findings": {}, "figures": {"peak_memory_mb": {"value": 1}}}', "either absolute_"),
        (
            '{"schema_version": 1, "findings": {}, "figures": {"peak_memory_mb": '
            '{"value": NaN, "absolute_tolerance": 1}}}',
            "value of peak_memory_mb is nan",
        ),
    ],
)
def test_what_is_no_baseline_is_refused_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(DoctorError) as refused:
        read(str(path))
    assert "--update-baseline" in refused.value.hint
    assert said in refused.value.message
    assert "\n" not in refused.value.message


def test_a_baseline_that_is_not_there_is_refused_unless_it_is_to_be_written(tmp_path: Path) -> None:
    settings = Settings(baseline=str(tmp_path / "none.json"))
    with pytest.raises(DoctorError, match="cannot be read"):
        baseline_of(settings)
    assert baseline_of(replace(settings, update_baseline=True)) is None


@pytest.mark.parametrize("key", ["name", "family", "weights"])
def test_the_baseline_of_another_subject_is_refused(key: str) -> None:
    here = {"name": "my-gemma", "family": "gemma3_text", "weights": "real"}
    require_same_subject(Baseline("b.json", here), here)
    with pytest.raises(DoctorError, match=f"another subject .{key}"):
        require_same_subject(Baseline("b.json", {**here, key: "other"}), here)


def test_a_folder_that_moved_is_the_same_subject() -> None:
    named = (replace(HEALTHY, subject={**HEALTHY.subject, "name": name}) for name in ("./my-gemma", "/a/my-gemma"))
    assert len({json.loads(updated(one))["subject"]["name"] for one in named}) == 1


# --- findings --------------------------------------------------------------------------------------------------------


@pytest.fixture
def known(tmp_path: Path) -> Baseline:
    return written(measured(SICK), tmp_path)


def test_what_is_in_it_does_not_count(known: Baseline) -> None:
    left, reasons, said = held(known, *SICK.results)
    assert left == []
    assert set(reasons) == {KNOWN}
    assert said == []


def test_figures_in_a_title_are_no_part_of_a_finding(known: Baseline) -> None:
    title = RIGHT_PADDING.title.replace("4.8", "5.1")
    assert held(known, failing(replace(RIGHT_PADDING, title=title)))[0] == []


def test_another_finding_counts(known: Baseline) -> None:
    other = replace(RIGHT_PADDING, title="something else")
    assert held(known, failing(other, RIGHT_PADDING))[0] == [other]


def test_a_second_one_of_the_same_kind_counts(known: Baseline) -> None:
    assert held(known, failing(RIGHT_PADDING, RIGHT_PADDING))[0] == [RIGHT_PADDING]


@pytest.mark.parametrize(
    ("worse", "said"),
    [
        (replace(RIGHT_PADDING, severity=Severity.ERROR), "error, was warning"),
        (wider(EARLY_DROP, layers=(0, 5, 11, 12)), "now in layers 5, 11 as well"),
        (wider(EARLY_DROP, layers=()), "now in the whole model"),
        (wider(EARLY_DROP, passes=("crossing", "prompt 2W")), "now in the pass prompt 2W as well"),
    ],
)
def test_what_is_worse_counts_and_says_so(worse: Finding, said: str, known: Baseline) -> None:
    left, _, remarks = held(known, failing(worse))
    assert left == [worse]
    told = f"worse than in the baseline: {worse.check}: {worse.title}: {said}"
    assert told in remarks


@pytest.mark.parametrize(
    "better",
    [
        replace(EARLY_DROP, severity=Severity.WARNING),
        wider(EARLY_DROP, layers=(3,)),
        wider(EARLY_DROP, passes=("crossing", "a pass that did not run before")),
    ],
)
def test_what_is_no_worse_does_not_count(better: Finding, known: Baseline) -> None:
    assert held(known, failing(better))[0] == []


def test_what_is_worse_counts_although_its_cause_is_known(known: Baseline) -> None:
    worse = replace(wider(LOOP, layers=()), severity=Severity.ERROR)
    lesser = replace(SICK, results=(failing(EARLY_DROP), failing(replace(LOOP, severity=Severity.WARNING))))
    before = Baseline("b", {}, findings=read_from(updated(lesser)))
    left, _, _ = held(before, failing(EARLY_DROP), failing(worse))
    assert left == [replace(worse, follows_from="")]


def read_from(text: str) -> Any:
    return {mark: baseline_file._finding(one) for mark, one in json.loads(text)["findings"].items()}


def test_a_new_consequence_of_what_is_known_does_not_count(known: Baseline) -> None:
    follows = replace(LOOP, check="recall", title="facts are lost")
    assert held(known, failing(EARLY_DROP), failing(follows))[0] == []


def test_one_of_two_alike_may_go(tmp_path: Path) -> None:
    two = [wider(EARLY_DROP, layers=(0,)), wider(EARLY_DROP, layers=(1,))]
    both = written(measured(with_results(HEALTHY, failing(*two))), tmp_path)
    left, _, said = held(both, failing(two[1]))
    assert left == []
    assert said == [f"gone since the baseline: past-key-length: {EARLY_DROP.title}; --update-baseline forgets it"]


def test_what_is_gone_is_told_of_checks_that_looked(known: Baseline) -> None:
    passed = result("padding-side", "tokens", Outcome.PASS)
    skipped = result("past-key-length", "cache", Outcome.SKIPPED, said="no time")
    said = f"gone since the baseline: padding-side: {RIGHT_PADDING.title}; --update-baseline forgets it"
    assert held(known, passed, skipped)[2] == [said]


def test_a_note_that_is_gone_is_not_told(known: Baseline) -> None:
    assert held(known, result(SHIFT.check, "positions", Outcome.PASS))[2] == []


# --- figures ---------------------------------------------------------------------------------------------------------

RECORDED = {
    "loss_after_the_edge": RecordedFigure(3.63, 0.02),
    "tokens_per_second": RecordedFigure(14.0, None, 0.5),
    "peak_memory_mb": RecordedFigure(2000.0, None, 0.25),
}
SAME = {"loss_after_the_edge": 3.63, "tokens_per_second": 14.0, "peak_memory_mb": 2000.0}


def run(differs: dict[str, str] | None = None, **now: float) -> CheckResult:
    return run_check(regression, run=GoodRun("b.json", RECORDED, SAME | now, differs or {}))


@pytest.mark.parametrize(
    "now",
    [
        {},
        {"loss_after_the_edge": 3.6499, "tokens_per_second": 7.01, "peak_memory_mb": 2499.0},
        {"loss_after_the_edge": 0.1, "tokens_per_second": 900.0, "peak_memory_mb": 3.0},
    ],
    ids=["same", "within", "better"],
)
def test_the_same_within_tolerance_or_better_passes(now: dict[str, float]) -> None:
    result = run(**now)
    assert (result.outcome, result.findings) == (Outcome.PASS, ())
    assert result.examined is not None
    assert result.examined.count == 3


@pytest.mark.parametrize(
    ("now", "severity", "observed", "expected"),
    [
        (
            {"loss_after_the_edge": 3.6511},
            Severity.ERROR,
            "loss after the edge 3.651",
            "at most 3.650: the baseline has 3.630, tolerance 0.02 (b.json, nats a token)",
        ),
        (
            {"tokens_per_second": 6.9},
            Severity.WARNING,
            "6.9 tokens/s",
            "at least 7.0: the baseline has 14.0, tolerance 50% (b.json)",
        ),
        (
            {"peak_memory_mb": 2501.0},
            Severity.WARNING,
            "2,501 MB",
            "at most 2,500: the baseline has 2,000, tolerance 25% (b.json)",
        ),
    ],
)
def test_a_figure_that_is_worse_is_a_finding(
    now: dict[str, float], severity: Severity, observed: str, expected: str
) -> None:
    (finding,) = run(**now).findings
    assert (finding.severity, finding.observed, finding.expected) == (severity, observed, expected)


def test_a_text_that_costs_more_everywhere_is_one_finding() -> None:
    recorded = dict.fromkeys([name for name, kind in FIGURES.items() if kind is LOSS], RecordedFigure(3.0, 0.02))
    result = run_check(regression, run=GoodRun("b.json", recorded, dict.fromkeys(recorded, 4.0), {}))
    assert [one.observed.count("4.000") for one in result.findings] == [3]


def test_a_figure_that_cannot_be_compared_is_no_finding() -> None:
    result = run({"tokens_per_second": "torch 2.13, in the baseline 2.5"}, tokens_per_second=0.1)
    assert result.findings == ()
    assert result.examined is not None
    assert result.examined.sentence.endswith("1 figure not compared: torch 2.13, in the baseline 2.5")


def test_where_nothing_can_be_compared_it_could_not_look() -> None:
    result = run(dict.fromkeys(RECORDED, "device cpu, in the baseline cuda:0"))
    assert (result.outcome, result.findings) == (Outcome.SKIPPED, ())
    assert result.reason == "no figure of the baseline can be compared: device cpu, in the baseline cuda:0"


def test_what_was_not_measured_is_no_finding() -> None:
    result = run_check(regression, run=GoodRun("b.json", RECORDED, {}, {}))
    assert result.outcome is Outcome.SKIPPED


def test_a_baseline_without_figures_is_not_applicable() -> None:
    assert run_check(regression, run=GoodRun("b.json", {}, {}, {})).outcome is Outcome.NOT_APPLICABLE


def test_a_loss_follows_from_what_is_wrong_before_it_and_speed_from_nothing() -> None:
    checks = {one.id: one for one in built_in()}
    lost = Finding(
        title="lost", severity=Severity.ERROR, observed="o", expected="e", do="d", check="window-crossing",
        where=Location(passes=(LONG_TEXT,)),
    )  # fmt: skip
    crossing = result("window-crossing", "generation", Outcome.FAIL, lost)
    worse = run(loss_after_the_edge=9.0, tokens_per_second=0.1)
    chain = triage((crossing, worse), [checks["window-crossing"], checks["regression"]])
    assert [one.follows_from for one in chain[1].findings] == ["window-crossing", ""]


def test_every_loss_of_the_long_text_is_a_known_figure() -> None:
    examined = run_check(window_crossing, text=long_text()).examined
    assert examined is not None
    assert examined.figures == dict.fromkeys([name for name, kind in FIGURES.items() if kind is LOSS], 3.0)


def test_a_loss_that_is_no_number_is_no_figure() -> None:
    text = long_text()
    broken = replace(text.regions[0], cached=frozen(np.full(64, np.nan)))
    assert [*replace(text, regions=(broken, *text.regions[1:])).figures] == [*FIGURES][1:3]


@pytest.mark.parametrize(
    ("changed", "apart"),
    [
        ({}, ()),
        ({"transformers": "9.0"}, ("tokens_per_second", "peak_memory_mb")),
        ({"device": "cuda:0"}, tuple(FIGURES)),
        ({"backend": "eager"}, ("tokens_per_second", "peak_memory_mb")),
    ],
)
def test_what_must_be_the_same_for_a_figure(changed: dict[str, str], apart: tuple[str, ...]) -> None:
    report = measured(HEALTHY)
    one = conditions(report.subject, report.environment, report.passes)
    other = conditions(report.subject, {**report.environment, **changed}, report.passes)
    assert tuple(name for name in FIGURES if difference(one, other, name)) == apart


class Collected:
    """What `good_run` asks of a collector."""

    def __init__(self, weights: str = "real", refusal: Exception | None = None) -> None:
        self.patient = SimpleNamespace(subject=SimpleNamespace(weights=weights))
        self.trace = None
        self._refusal = refusal

    def get(self, kind: type) -> Any:
        if self._refusal is not None:
            raise self._refusal
        return long_text()

    def timing(self) -> dict[str, Any]:
        return {"tokens_per_second": 7.0, "phases": {}}


def collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> GoodRun:
    report = measured(HEALTHY)
    written(report, tmp_path)
    facts = {name: getattr(report, name) for name in ("subject", "environment", "passes", "timing")}
    monkeypatch.setattr(capture, "report_facts", lambda *_: facts)
    return capture.good_run(Collected(**changes), Settings(baseline=str(tmp_path / "baseline.json")))  # type: ignore[arg-type]


def test_the_figures_of_a_run_stand_beside_those_of_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = collected(tmp_path, monkeypatch)
    assert found.recorded["loss_before_the_edge"].value == 4.31
    assert found.measured["loss_before_the_edge"] == 3.0
    assert found.measured["tokens_per_second"] == 7.0
    assert found.differs == {}


def test_a_text_that_could_not_be_run_leaves_the_other_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [*collected(tmp_path, monkeypatch, refusal=CouldNotLook("memory")).measured] == ["tokens_per_second"]


def test_the_figures_of_a_skeleton_are_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotApplicable, match="trained weights"):
        collected(tmp_path, monkeypatch, weights="skeleton")


def chosen(**settings: Any) -> Sequence[str]:
    return [one.id for one in chosen_checks(Settings(no_plugins=True, **settings))]


def test_figures_are_looked_at_with_a_baseline_alone() -> None:
    assert "regression" not in chosen()
    assert "regression" in chosen(baseline="b.json")
    assert "regression" not in chosen(baseline="b.json", update_baseline=True)
    assert chosen(select=("regression",)) == ["regression"]


def test_a_drill_asks_no_baseline() -> None:
    twin = HealthyTwin.__new__(HealthyTwin)
    twin._settings = Settings(baseline="that is not there.json", update_baseline=True)
    drilled = twin._with(())
    assert (drilled.baseline, drilled.update_baseline) == (None, False)


# --- the command line ------------------------------------------------------------------------------------------------

RUN_FILE = "subject: gemma-3-1b-it\nstatic: true\noverrides: {sliding_window: %d}\nexpect: gemma-3-1b-it\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(RUN_FILE % 256)
    return tmp_path


def check(*flags: str) -> int:
    return cli.main(["check", "run.yaml", "--baseline", "b.json", *flags])


def test_a_sick_subject_passes_once_its_faults_are_written_down(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", "run.yaml"]) == 1
    assert check("--update-baseline") == 0
    capsys.readouterr()
    assert check() == 0
    said = capsys.readouterr().out
    assert "NO NEW FAULT in all that was looked at, in the published file alone: " in said
    assert f"known  sliding-window   error, the window is not the one expected: {KNOWN} (baseline)" in said


def test_a_new_fault_beside_those_written_down_fails(folder: Path) -> None:
    assert check("--update-baseline") == 0
    (folder / "run.yaml").write_text((RUN_FILE % 256).replace("256", "256, rms_norm_eps: 0.01"))
    assert check() == 1


def test_a_baseline_is_written_whole_and_alike(folder: Path) -> None:
    assert check("--update-baseline") == 0
    first = (folder / "b.json").read_bytes()
    assert check("--update-baseline") == 0
    assert (folder / "b.json").read_bytes() == first
    assert sorted(path.name for path in folder.iterdir()) == ["b.json", "run.yaml"]


def test_what_is_no_baseline_is_never_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "b.json").write_text('{"model_type": "gemma3_text"}')
    assert check("--update-baseline") == 2
    assert (folder / "b.json").read_text() == '{"model_type": "gemma3_text"}'
    assert "is no baseline" in capsys.readouterr().err


def test_a_run_that_could_not_look_leaves_the_baseline_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--update-baseline", "--select", "sliding-window,mask-dtype", "--strict-skips") == 2
    assert not (folder / "b.json").exists()
    assert "stays as it was" in capsys.readouterr().err


def test_another_subjects_baseline_is_refused_before_anything_is_examined(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("--update-baseline") == 0
    (folder / "run.yaml").write_text("subject: gemma-2-2b\nstatic: true\n")
    assert check() == 2
    assert check("--update-baseline") == 2
    said = capsys.readouterr()
    assert said.out.count("gemma-doctor 0") == 1
    assert "another subject (name gemma-3-1b-it, here gemma-2-2b)" in said.err


def test_the_report_for_programs_says_what_the_baseline_knows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--update-baseline", "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [
        error.message for error in jsonschema.Draft202012Validator(schemas.load("report")).iter_errors(document)
    ] == []
    assert document["verdict"] == "NO NEW FAULT"
    assert {one["source"] for one in document["suppressed"]} == {"baseline"}


def test_the_verdict_is_in_the_schema_of_the_report() -> None:
    known = set_aside(SICK.results, (), accepted(None, SICK.results), TODAY)
    word = verdict.verdict(replace(SICK, results=known[0], suppressed=known[1]))
    assert word in schemas.load("report")["properties"]["verdict"]["enum"]


def test_another_value_of_a_known_key_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A window of 256 that is put up with says nothing of one of 5."""
    folder = tmp_path / "m"
    folder.mkdir()
    config = presets.load("gemma-3-270m")
    command = ["check", str(folder), "--static", "--expect", "gemma-3-270m", "--baseline", str(tmp_path / "b.json")]
    (folder / "config.json").write_text(json.dumps({**config, "sliding_window": 256}), encoding="utf-8")
    assert cli.main([*command, "--update-baseline"]) == 0
    assert cli.main(command) == 0
    (folder / "config.json").write_text(json.dumps({**config, "sliding_window": 5}), encoding="utf-8")
    capsys.readouterr()
    assert cli.main(command) == 1
    assert "worse than in the baseline: sliding-window" in capsys.readouterr().out
