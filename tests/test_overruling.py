"""What a run file says otherwise than the checks: severities; and what --show-config tells of all settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_reports import EARLY_DROP, RIGHT_PADDING, SHIFT, result

from gemma_doctor import cli
from gemma_doctor.errors import DoctorError
from gemma_doctor.finding import Outcome, Severity
from gemma_doctor.overruling import overruled, require_known, with_severities
from gemma_doctor.registry import built_in
from gemma_doctor.settings import Settings

FAULTY = Path(__file__).parent.parent / "sample_configs" / "faulty" / "sliding-window-halved.yaml"
SICK = result("past-key-length", "cache", Outcome.FAIL, EARLY_DROP)
WARNED = result("padding-side", "tokens", Outcome.FAIL, RIGHT_PADDING)
NOTED = result("position-ids", "positions", Outcome.PASS, SHIFT)


def test_findings_get_the_severity_that_the_run_file_gives_their_check() -> None:
    raised, lowered, other = with_severities(
        (WARNED, SICK, WARNED), {"padding-side": Severity.ERROR, "past-key-length": Severity.NOTE}
    )
    assert (raised.worst, raised.outcome) == (Severity.ERROR, Outcome.FAIL)
    assert (lowered.worst, lowered.outcome) == (Severity.NOTE, Outcome.PASS)
    assert other == raised


def test_notes_stay_notes_and_other_checks_as_they_are() -> None:
    mixed = replace(WARNED, findings=(RIGHT_PADDING, replace(RIGHT_PADDING, severity=Severity.NOTE)))
    (changed,) = with_severities((mixed,), {"padding-side": Severity.ERROR})
    assert [one.severity for one in changed.findings] == [Severity.ERROR, Severity.NOTE]
    assert with_severities((NOTED, SICK), {"position-ids": Severity.ERROR}) == (NOTED, SICK)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(severity={"padding-sid": Severity.ERROR}), "severity: there is no check 'padding-sid'; did you mean"),
        (Settings(thresholds={"mask": {"x": 1.0}}), "thresholds: there is no check 'mask'"),
        (Settings(thresholds={"mask-dtype": {"margin": 1.0}}), "thresholds: mask-dtype has no threshold 'margin'"),
    ],
)
def test_a_name_that_there_is_not_is_refused(settings: Settings, said: str) -> None:
    with pytest.raises(DoctorError) as caught:
        require_known(settings, built_in())
    assert caught.value.message.startswith(said)
    assert caught.value.hint


def test_the_report_says_what_was_overruled() -> None:
    settings = Settings(severity={"padding-side": Severity.ERROR}, thresholds={"window-crossing": {"margin": 0.4}})
    assert overruled(settings) == ("as the run file says: padding-side counts as error; window-crossing: margin = 0.4",)
    assert overruled(Settings()) == ()


def test_a_lowered_check_opens_the_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(FAULTY), "--static"]) == 1
    run = tmp_path / "run.yaml"
    run.write_text(FAULTY.read_text(encoding="utf-8") + "\nseverity: {sliding-window: note}\n", encoding="utf-8")
    capsys.readouterr()
    assert cli.main(["check", str(run), "--static"]) == 0
    assert "as the run file says: sliding-window counts as note" in capsys.readouterr().out


def test_show_config_says_what_each_setting_is_and_who_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMA_DOCTOR_SEED", "3")
    run = tmp_path / "run.yaml"
    run.write_text("subject: gemma-2-2b\nmargin: 8\nprompt: secret words\n", encoding="utf-8")
    assert cli.main(["check", "--config", str(run), "--fail-on", "never", "--show-config"]) == 0
    rows = {line.split()[0]: line.split(None, 1)[1] for line in capsys.readouterr().out.splitlines()}
    said = {name: " ".join(row.split()) for name, row in rows.items()}
    assert said["subject"] == f"run file {run} gemma-2-2b"
    assert said["margin"] == f"run file {run} 8"
    assert said["seed"] == "GEMMA_DOCTOR_SEED 3"
    assert said["fail-on"] == "--fail-on never"
    assert said["weights"] == "default auto"
    assert said["prompts"] == f"run file {run} given prompt"  # its name: the text may be long, or nobody's business
