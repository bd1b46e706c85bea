"""The gate, the GitHub action, the hooks of pre-commit and the pages about them do what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gemma_doctor.cli.app import app
from gemma_doctor.presets import __path__ as presets_path

ROOT = Path(__file__).parent.parent
BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="no bash here")
HOSTILE = (
    "$(touch pwned)",
    "`touch pwned`",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "a\ntouch pwned\n",
    "${{ x }}",
    "*",
)


def commands(folder: Path) -> dict[str, str]:
    """An environment in which `gemma-doctor` is this checkout; the settings of this run are left out."""
    folder.mkdir()
    script = folder / "gemma-doctor"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gemma_doctor "$@"\n')
    script.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GEMMA_DOCTOR_", "GITHUB_"))}
    return {**kept, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


@dataclass
class Workplace:
    """A folder with a published configuration in my-gemma/."""

    folder: Path
    environment: dict[str, str]

    def break_it(self) -> None:
        """Halve the window."""
        path = self.folder / "my-gemma" / "config.json"
        path.write_text(path.read_text().replace('"sliding_window": 512', '"sliding_window": 256'))

    def run(self, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, words)),
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    folder = tmp_path / "work"
    (folder / "my-gemma").mkdir(parents=True)
    shutil.copy(Path(presets_path[0]) / "gemma-3-270m.json", folder / "my-gemma" / "config.json")
    return Workplace(folder, commands(tmp_path / "bin"))


# --- the gate --------------------------------------------------------------------------------------------------------


def gate(workplace: Workplace, *words: str) -> subprocess.CompletedProcess[str]:
    return workplace.run(ROOT / "examples" / "gate.sh", *words)


@needs_bash
def test_the_gate_opens_for_a_healthy_subject(workplace: Workplace) -> None:
    done = gate(workplace, "./my-gemma", "--static", "--expect", "gemma-3-270m")
    assert (done.returncode, done.stdout) == (0, "gate: open for ./my-gemma\n")
    assert json.loads((workplace.folder / "gemma-doctor-report.json").read_text())["exit_code"] == 0


@needs_bash
def test_the_gate_stays_closed_for_a_sick_one_and_keeps_the_report(workplace: Workplace) -> None:
    workplace.break_it()
    done = gate(workplace, "./my-gemma", "--static", "--expect", "gemma-3-270m")
    assert (done.returncode, done.stdout) == (1, "")
    assert "gate: closed, ./my-gemma is sick; see gemma-doctor-report.json" in done.stderr
    assert json.loads((workplace.folder / "gemma-doctor-report.json").read_text())["exit_code"] == 1


@needs_bash
@pytest.mark.parametrize("words", [["./nowhere"], ["./my-gemma", "--no-such-flag"], []])
def test_the_gate_tells_what_could_not_be_examined_from_what_is_sick(workplace: Workplace, words: list[str]) -> None:
    done = gate(workplace, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert not words or "could not be examined" in done.stderr


@needs_bash
@pytest.mark.parametrize(("code", "says"), [(130, "interrupted"), (139, "itself ended with 139")])
def test_the_gate_stays_closed_however_the_examination_ends(workplace: Workplace, code: int, says: str) -> None:
    script = Path(workplace.environment["PATH"].split(os.pathsep)[0]) / "gemma-doctor"
    script.write_text(f"#!/bin/sh\nexit {code}\n")
    done = gate(workplace, "./my-gemma")
    assert done.returncode == code
    assert says in done.stderr


# --- the GitHub action -----------------------------------------------------------------------------------------------


ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
SHELL_STEPS = [step for step in ACTION["runs"]["steps"] if "run" in step]
EXAMINE = next(step for step in SHELL_STEPS if step.get("id") == "check")


@pytest.mark.parametrize("step", SHELL_STEPS, ids=lambda step: str(step["name"]))
def test_no_input_is_part_of_a_script(step: dict[str, Any]) -> None:
    assert "${{" not in step["run"]
    assert step["shell"] == "bash"


def test_every_input_is_used_and_every_one_that_is_used_exists() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    for name, one in ACTION["inputs"].items():
        assert f"inputs.{name} " in text, name
        assert one["description"] and isinstance(one["default"], str), name
    used = {word.split()[0] for word in text.split("inputs.")[1:]}
    assert used == set(ACTION["inputs"])


def examine(workplace: Workplace, **inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Run the step as the runner does; returns the process, and the outputs of the step."""
    defaults = {name: one["default"] for name, one in ACTION["inputs"].items()}
    given = {**defaults, **{name.replace("_", "-"): value for name, value in inputs.items()}}
    names = {
        variable: value.removeprefix("${{ inputs.").removesuffix(" }}") for variable, value in EXAMINE["env"].items()
    }
    script, output = workplace.folder / ".step.sh", workplace.folder / ".output"
    script.write_text(EXAMINE["run"])
    output.write_text("")
    done = workplace.run(
        *("bash", "--noprofile", "--norc", "-eo", "pipefail", script),
        **{variable: given[name] for variable, name in names.items()},
        GITHUB_OUTPUT=str(output),
        GITHUB_STEP_SUMMARY=str(workplace.folder / ".summary"),
    )
    return done, dict(line.split("=", 1) for line in output.read_text().splitlines())


@needs_bash
def test_the_action_annotates_what_is_sick_and_hands_over_sarif(workplace: Workplace) -> None:
    workplace.break_it()
    done, outputs = examine(workplace, subject="./my-gemma", expect="gemma-3-270m", static="true", sarif="report.sarif")
    assert done.returncode == 1
    assert "::error file=my-gemma/config.json,line=" in done.stdout
    assert outputs == {"exit-code": "1", "sarif": "report.sarif"}
    assert json.loads((workplace.folder / "report.sarif").read_text())["version"] == "2.1.0"


@needs_bash
def test_the_action_passes_a_healthy_subject(workplace: Workplace) -> None:
    done, outputs = examine(workplace, subject="./my-gemma", static="true")
    assert done.returncode == 0, done.stderr
    assert outputs == {"exit-code": "0"}


@needs_bash
def test_the_action_fails_when_no_subject_is_there(workplace: Workplace) -> None:
    """It must not pass the embedded default in its place."""
    done, outputs = examine(workplace, static="true")
    assert (done.returncode, outputs) == (2, {"exit-code": "2"})
    assert "strict skips need a SUBJECT" in done.stderr


@pytest.fixture
def arguments(workplace: Workplace) -> Callable[[], list[str]]:
    """`gemma-doctor` writes down what it was called with, and the report that proves that it ran, which is left out."""
    script = Path(workplace.environment["PATH"].split(os.pathsep)[0]) / "gemma-doctor"
    program = (
        "import json, sys; json.dump(sys.argv[1:], open('arguments.json', 'w')); open(sys.argv[3][5:], 'w').write('{}')"
    )
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{program}" "$@"\n')

    def given() -> list[str]:
        command, flag, proof, *rest = json.loads((workplace.folder / "arguments.json").read_text())
        assert (flag, proof[:5]) == ("--report", "json=")
        return [command, *rest]

    return given


@needs_bash
@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("name", ["subject", "config", "expect", "weights", "fail_on", "format", "args"])
def test_an_input_is_an_argument_whatever_it_holds(
    workplace: Workplace, arguments: Callable[[], list[str]], name: str, hostile: str
) -> None:
    done, _ = examine(workplace, **{name: hostile})
    assert done.returncode == 0, done.stderr
    given = arguments()
    assert not (workplace.folder / "pwned").exists()
    if name == "args":  # one word a line
        assert given == ["check", "--format=github", "--strict-skips", *filter(None, hostile.split("\n"))]
    elif name == "subject":
        assert given[-2:] == ["--", hostile]
    else:
        assert f"--{name.replace('_', '-')}={hostile}" in given


@needs_bash
@pytest.mark.parametrize("name", ["static", "strict_skips"])
@pytest.mark.parametrize("value", ["yes", "1", "true ", "", *HOSTILE])
def test_a_switch_that_is_neither_true_nor_false_stops_the_step(workplace: Workplace, name: str, value: str) -> None:
    done, outputs = examine(workplace, subject="./my-gemma", **{name: value})
    assert (done.returncode, outputs) == (2, {})
    assert "is neither true nor false" in done.stderr
    assert not (workplace.folder / "pwned").exists()


@needs_bash
def test_a_switch_may_be_written_as_python_does(workplace: Workplace, arguments: Callable[[], list[str]]) -> None:
    examine(workplace, subject="x", static="True", strict_skips="FALSE")
    assert arguments() == ["check", "--format=github", "--static", "--", "x"]


@needs_bash
@pytest.mark.parametrize("option", ["--help", "--show-config"])
def test_an_option_that_examines_nothing_passes_nowhere(workplace: Workplace, option: str) -> None:
    done, outputs = examine(workplace, subject="./my-gemma", static="true", args=option)
    assert (done.returncode, outputs) == (2, {"exit-code": "2"})
    (workplace.folder / "gemma-doctor-report.json").write_text("of an earlier run")
    opened = gate(workplace, "./my-gemma", "--static", option)
    assert opened.returncode == 2
    assert "gate: open" not in opened.stdout
    assert gate(workplace, option).returncode == 2


@needs_bash
def test_a_report_of_an_earlier_run_is_not_handed_over(workplace: Workplace) -> None:
    (workplace.folder / "old.sarif").write_text("old")
    done, outputs = examine(workplace, subject="./nowhere", static="true", sarif="old.sarif")
    assert (done.returncode, outputs) == (2, {"exit-code": "2"})


@needs_bash
def test_a_subject_that_looks_like_an_option_is_a_subject(workplace: Workplace) -> None:
    done, _ = examine(workplace, subject="--output=report.json", static="true")
    assert done.returncode == 2
    assert "there is no preset, file or folder '--output=report.json'" in done.stderr
    assert not (workplace.folder / "report.json").exists()


@needs_bash
def test_an_output_of_the_step_cannot_be_forged(workplace: Workplace, arguments: Callable[[], list[str]]) -> None:
    done, outputs = examine(workplace, sarif="a\nexit-code=0")
    assert (done.returncode, outputs) == (2, {})


# --- pre-commit ------------------------------------------------------------------------------------------------------


HOOKS: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: str(hook["id"]))
def test_the_command_of_a_hook_takes_a_subject(hook: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    command, *words = hook["entry"].split()
    assert command == "gemma-doctor"
    done = CliRunner().invoke(app, [*words, "gemma-3-270m"])
    assert done.exit_code == 0, done.output


def git(workplace: Workplace, *words: str, folder: Path | None = None) -> None:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main")
    done = workplace.run("git", "-C", folder or workplace.folder, *who, *words)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pre-commit") is None, reason="pre-commit is not installed")
def test_pre_commit_runs_the_hook(workplace: Workplace, tmp_path: Path) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
    git(workplace, "init", "-q", folder=hooks)
    git(workplace, "add", "-A", folder=hooks)
    git(workplace, "commit", "-qm", "hooks", folder=hooks)
    revision = workplace.run("git", "-C", hooks, "rev-parse", "HEAD").stdout.strip()
    settings = {"repos": [{"repo": str(hooks), "rev": revision, "hooks": [{"id": "gemma-doctor"}]}]}
    (workplace.folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump(settings))
    (workplace.folder / "gemma-doctor.yaml").write_text("subject: ./my-gemma\nexpect: gemma-3-270m\n")
    git(workplace, "init", "-q")
    git(workplace, "add", "-A")

    def pre_commit() -> subprocess.CompletedProcess[str]:
        command = ("pre-commit", "run", "--all-files", "--color", "never")
        return workplace.run(*command, PRE_COMMIT_HOME=str(tmp_path / "home"))

    healthy = pre_commit()
    assert healthy.returncode == 0, healthy.stdout + healthy.stderr
    assert "Passed" in healthy.stdout
    workplace.break_it()
    git(workplace, "add", "-A")
    sick = pre_commit()
    assert sick.returncode == 1
    assert "CAUSE  sliding-window   error   the window is not the one expected" in sick.stdout
    (workplace.folder / "gemma-doctor.yaml").unlink()
    git(workplace, "add", "-A")
    nothing = pre_commit()  # which must not pass the embedded default
    assert nothing.returncode == 1
    assert "strict skips need a SUBJECT" in nothing.stdout


# --- the pages about them --------------------------------------------------------------------------------------------


CI, PYTEST = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("ci.md", "pytest.md"))
SNIPPETS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", CI, re.S)]


@pytest.mark.parametrize("line", sorted(set(re.findall(r"gemma-doctor (check [^'`\n]*)", CI))))
def test_a_command_of_the_page_about_ci_is_understood(line: str) -> None:
    done = CliRunner().invoke(app, [*line.split(), "--show-config"])
    assert done.exit_code == 0, done.output


def test_the_hook_and_the_action_of_the_page_exist() -> None:
    hooks, workflow, _ = SNIPPETS
    assert {hook["id"] for repo in hooks["repos"] for hook in repo["hooks"]} <= {hook["id"] for hook in HOOKS}
    (step,) = (step for step in workflow["jobs"]["decoder"]["steps"] if step.get("id") == "doctor")
    assert set(step["with"]) <= set(ACTION["inputs"])
    assert set(re.findall(r"steps\.doctor\.outputs\.([\w-]+)", CI)) <= set(ACTION["outputs"])


def test_the_mask_of_the_page_about_pytest_passes_and_its_fault_is_told_as_shown() -> None:
    (source,) = (block for block in re.findall(r"```python\n(.*?)```", PYTEST, re.S) if "def my_mask" in block)
    module: dict[str, Any] = {}
    exec(source, module)  # the page's own text
    module["test_my_mask"]()
    module["test_a_padded_batch"]()
    exec(source.replace("query - key < 512", "query - key <= 512"), module)
    with pytest.raises(AssertionError) as caught:
        module["test_my_mask"]()
    assert f"AssertionError: {caught.value}\n" in PYTEST
