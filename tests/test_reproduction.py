"""Scripts that reproduce a cause: what they are made of, and that they are right in sick and in healthy releases."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake_reports import HEALTHY

from gemma_doctor import diagnosis, settings, subject
from gemma_doctor.finding import CheckResult, Finding, Location, Outcome, Report, Severity
from gemma_doctor.redaction import Redactor
from gemma_doctor.reproduction import Attempts, Script, Trial, attempted, written
from gemma_doctor.reproduction.trial import tried
from tests.overlays import OVERLAY, run_in

ROOT = Path(__file__).parent.parent
CRASH = "ValueError: Cannot crop a sliding layer of 64 tokens"
ROUTES = (
    "cached", "uncached", "uncached-generate", "static-cache", "chunked-prefill", "assisted", "prompt-lookup",
    "left-padded", "right-padded", "equal-rows", "forward-loop", "own-cache", "crop", "second-turn", "full-cache",
    "repeated-generate",
)  # fmt: skip
OTHERS = (
    "mask-pattern", "all-masked-rows", "mask-dtype", "position-ids", "rope-theta", "rms-norm-eps", "sliding-window",
    "layer-pattern", "bos-token", "padding-side", "pad-token", "tokenizer-integrity", "past-key-length",
)  # fmt: skip


def finding(check: str, route: str = "", observed: str = "logits off by up to 2", title: str = "t") -> Finding:
    return Finding(
        title=title,
        severity=Severity.ERROR,
        observed=observed,
        expected="e",
        do="d",
        where=Location(route=route),
        check=check,
    )


def report_of(*findings: Finding) -> Report:
    results = [CheckResult(check=one.check, group="cache", outcome=Outcome.FAIL, findings=(one,)) for one in findings]
    return replace(HEALTHY, results=tuple(results))


def subject_of(name: str = "gemma-3-270m") -> subject.Subject:
    return subject.resolve(settings.resolve({"subject": name, "weights": "skeleton"}, {}))


def script(*findings: Finding, of: str = "gemma-3-270m") -> Script:
    return written(report_of(*findings), subject_of(of), Redactor()).scripts[0]


EVERY = {
    **{one: finding(f"{one}-parity", one) for one in ROUTES},
    **{one: finding(one) for one in OTHERS},
    "crash": finding("assisted-parity", "assisted", CRASH),
    "drift": finding("config-drift", title="sliding_window changes when the model is saved and loaded again"),
}


@pytest.mark.parametrize("name", EVERY)
def test_a_script_needs_torch_and_transformers_alone(name: str) -> None:
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(ast.parse(script(EVERY[name]).text))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")])
    }
    assert imported <= {"json", "sys", "tempfile", "torch", "transformers"}


def test_scripts_are_formatted_and_linted(tmp_path: Path) -> None:
    for name, one in EVERY.items():
        tmp_path.joinpath(f"{name}.py").write_text(script(one).text, encoding="utf-8")
    for command in (["format", "--diff"], ["check", "--select", "E,F,W,I", "--ignore", "E501"]):
        line_length = ["--isolated", "--line-length", "120", str(tmp_path)]
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *line_length], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_script_is_short() -> None:
    texts = {name: re.sub(r'r"""\n\{.*?\n\}\n', "", script(one).text, flags=re.DOTALL) for name, one in EVERY.items()}
    assert max(len(text.splitlines()) for text in texts.values()) <= 95


def test_text_of_the_subject_cannot_leave_its_literal() -> None:
    hostile = finding("padding-side", title='""" + __import__("os").system("x") + """\\\n\u202e')
    tree = ast.parse(script(hostile).text)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "__import__"]
    crash = finding("crop-parity", "crop", 'RuntimeError: " + exit() + "')
    assert "exit()" not in script(crash).text


def test_what_needs_the_weights_has_no_script_and_a_reason() -> None:
    made = written(report_of(finding("recall"), finding("flash-window")), subject_of(), Redactor())
    assert made.scripts == ()
    assert [why for _, why in made.without] == [
        "it shows with the real weights, or against the noise of half precision",
        "there is no script for findings of flash-window",
    ]


def test_a_cause_without_a_script_takes_that_of_a_consequence() -> None:
    follows = replace(finding("chunked-prefill-parity", "chunked-prefill"), follows_from="known-release")
    assert "in chunks" in script(finding("known-release"), follows).text


def test_a_healthy_release_does_not_reproduce_it() -> None:
    trial = tried(script(finding("cache-parity", "cached")).text)
    assert trial.code == 0, trial.printed
    assert "not reproduced in transformers" in trial.printed
    assert trial.verdict == "it did NOT reproduce the cause"


def test_a_wrong_mask_is_seen() -> None:
    text = script(finding("mask-pattern")).text
    trial = tried(text.replace("WINDOW = 64", "WINDOW = 63"))
    assert trial.reproduced
    assert "expected False" in trial.printed


def test_what_cannot_be_run_proves_nothing() -> None:
    assert tried("import no_such_module_anywhere\n").verdict == "it could not be run, and proves nothing"
    assert tried("import sys; sys.exit(2)\n").verdict == "it could not be run, and proves nothing"
    assert tried("import time; time.sleep(60)\n", seconds=0.2).code is None


def test_the_script_that_reproduces_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = iter([Trial(0, "not reproduced"), Trial(1, "REPRODUCED: x")])
    monkeypatch.setattr("gemma_doctor.reproduction.trial.tried", lambda text, folder: next(trials))
    made = written(report_of(finding("cache-parity", "cached"), finding("rope-theta")), subject_of(), Redactor())
    attempts = attempted(made, None, lambda line: None)
    chosen, trial = attempts.chosen
    assert chosen is made.scripts[1]
    assert trial is not None
    assert trial.reproduced


def test_nothing_found_has_no_script() -> None:
    assert Attempts((), ()).chosen == (None, None)


@pytest.mark.parametrize(
    ("sample", "check"),
    [
        ("sliding-window-off-by-one", "sliding-window"),
        ("rms-norm-eps-times-1000", "rms-norm-eps"),
        ("rope-theta-scaling-dropped", "rope-theta"),
        ("layer-pattern-without-full-layers", "layer-pattern"),
    ],
)
def test_faults_of_a_configuration_are_reproduced(sample: str, check: str) -> None:
    asked = settings.resolve(
        {"subject": str(ROOT / "sample_configs" / "faulty" / f"{sample}.yaml"), "static": True, "select": [check]}, {}
    )
    report = diagnosis.diagnose(asked, lambda line: None)
    made = written(report, subject.resolve(asked), Redactor())
    assert made.scripts[0].finding.check == check
    trial = tried(made.scripts[0].text)
    assert trial.reproduced, trial.printed


# --- in the releases where faults live -------------------------------------------------------------------------------

# release, subject, routes, check of the cause, and a release that is well
SICK = [
    ("5.12.0", "gemma-3-270m", "assisted", "assisted-parity"),
    ("4.51.3", "gemma-3-270m", "cached", "past-key-length"),
    ("5.3.0", "olmo-3.1-32b-instruct", "cached", "rope-theta"),
]
if "GEMMA_DOCTOR_WHOLE_MATRIX" in os.environ:
    SICK += [
        ("5.16.1", "gemma-3-270m", "crop", "crop-parity"),
        ("4.57.6", "gemma-3-270m", "chunked-prefill", "chunked-prefill-parity"),
        ("4.52.4", "gemma-3-270m", "second-turn", "past-key-length"),
        ("4.52.4", "gemma-3-270m", "forward-loop", "forward-loop-parity"),
        ("5.5.4", "gemma-3n-E2B-it", "uncached", "uncached-parity"),
        ("5.12.0", "embeddinggemma-300m", "cached", "config-drift"),
    ]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not OVERLAY, reason="TRANSFORMERS_OVERLAY names no script that builds overlays of releases")
@pytest.mark.parametrize(("release", "name", "route", "check"), SICK)
def test_a_public_fault_is_reproduced_where_it_lives_alone(
    tmp_path: Path, release: str, name: str, route: str, check: str
) -> None:
    command = ["-m", "gemma_doctor", "bundle", name, "--weights", "skeleton", "--routes", route, "-q"]
    command += ["--depth", "quick", "-o", str(tmp_path / "b.zip")]
    done = run_in(release, *command)
    assert done.returncode == 0, done.stderr
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(tmp_path / "b.zip"), str(tmp_path)], check=True)
    said = tmp_path.joinpath("README.md").read_text(encoding="utf-8")
    assert "it reproduced the cause" in said
    assert f"About `{check}`" in said
    there = run_in(release, str(tmp_path / "reproduce.py"))
    here = subprocess.run([sys.executable, str(tmp_path / "reproduce.py")], capture_output=True, text=True, check=False)
    assert there.returncode == 1, there.stdout + there.stderr
    assert here.returncode == 0, here.stdout + here.stderr
    assert "not reproduced in transformers" in here.stdout
