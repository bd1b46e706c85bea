"""`gemma-doctor drill` from the command line: the report, exit codes, signals, and that the model is left as it was."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from rich.cells import cell_len

from gemma_doctor import cli, drill, registry
from gemma_doctor.cli import drill as drill_cli
from gemma_doctor.drilled import Drilled, DrillReport, Verdict
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import Config, ModelFacts
from gemma_doctor.fault_names import described, fault_names
from gemma_doctor.faults import Fault, all_faults
from gemma_doctor.finding import Examined, Finding, Severity
from gemma_doctor.loading import Patient, admit
from gemma_doctor.report.drill import document, headline, schema, score, text
from gemma_doctor.settings import Settings

ROOT = Path(__file__).parent.parent
SUBJECT = "gemma-3-1b-it"
VALIDATOR = jsonschema.Draft202012Validator(schema())
EVIL = "\x1b[31m[bold red]x[/bold red]\r\n\x07\u202eevil"


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in list(os.environ):
        if variable.startswith("GEMMA_DOCTOR_") or variable in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(variable)


# --- reports made by hand --------------------------------------------------------------------------------------------


def one(fault: str, group: str, expected: str, verdict: Verdict, **more: Any) -> Drilled:
    causes = (expected,) if verdict is Verdict.CAUGHT else ()
    fields = {"title": f"Do {fault}.", "causes": causes, "seconds": 0.7 if causes else 0.0, **more}
    return Drilled(fault=fault, group=group, caught_by=expected, verdict=verdict, **fields)


CAUGHT = (
    one("right-padding", "tokens", "padding-side", Verdict.CAUGHT),
    one(
        "window-ignored",
        "mask",
        "mask-pattern",
        Verdict.CAUGHT,
        consequences=("visible-keys", "decode-parity"),
        observed="row 64 may read column 0",
    ),
)
NOT_PUT_IN = (
    one("a-shared-layer", "cache", "past-key-length", Verdict.NOT_APPLICABLE, reason="no layer shares"),
    one("another-shared-layer", "cache", "past-key-length", Verdict.NOT_APPLICABLE, reason="no layer shares"),
    one("bos-doubled", "tokens", "bos-token", Verdict.NOT_COVERED),
    one("bos-missing", "tokens", "bos-token", Verdict.NOT_COVERED),
)
MISSED = one("eps-zero", "numerics", "rms-norm-eps", Verdict.MISSED, seconds=0.6)
WRONG = one(
    "theta-swapped",
    "positions",
    "rope-theta",
    Verdict.WRONG,
    causes=("position-ids", "rope-theta"),
    consequences=("cache-parity",),
    observed="layer 0 turns pair 3",
    seconds=0.8,
)
NOT_UNDONE = one("sticky", "mask", "mask-shape", Verdict.NOT_UNDONE, reason="the subject is not as before", seconds=0.5)
ALL_CAUGHT = DrillReport(
    version="0.1.0",
    subject={
        "name": "gemma-3-4b-it",
        "subject_source": "argument",
        "family": "gemma3_text",
        "layers": 34,
        "layer_kinds": (*("sliding_attention",) * 5, "full_attention"),
        "window": 1024,
        "weights": "skeleton",
    },
    environment={
        "transformers": "5.24.0",
        "torch": "2.13.0",
        "python": "3.11.9",
        "device": "cpu",
        "dtype": "float32",
        "backend": "sdpa",
        "seed": 0,
    },
    passes={"window": 1024, "reduced_window": 64, "prompt_length": 60, "prompt_from": "random ids", "generated": 8},
    remarks=("SKELETON: random weights, unless --weights real asks",),
    drilled=(*CAUGHT, *NOT_PUT_IN),
    timing={"total": 9.1, "healthy": 1.2},
)
REPORTS = {
    "all caught": ALL_CAUGHT,
    "missed": replace(ALL_CAUGHT, drilled=(CAUGHT[0], WRONG, CAUGHT[1], MISSED, *NOT_PUT_IN), exit_code=1),
    "wrong": replace(ALL_CAUGHT, drilled=(WRONG, *CAUGHT), exit_code=1),
    "not undone": replace(
        ALL_CAUGHT, drilled=(CAUGHT[0], NOT_UNDONE), left=4, stopped="sticky left the subject changed", exit_code=2
    ),
    "late": replace(ALL_CAUGHT, left=9, stopped="timed out after 5 s", exit_code=2),
    "interrupted": replace(ALL_CAUGHT, left=9, stopped="interrupted", interrupted=True, exit_code=130),
    "at once": replace(ALL_CAUGHT, drilled=(), left=9, stopped="interrupted", interrupted=True, exit_code=130),
    "nothing": replace(ALL_CAUGHT, drilled=NOT_PUT_IN, exit_code=2),
}
HEADLINES = {
    "all caught": "NOTICED 2 of 2 applicable faults on gemma-3-4b-it (skeleton)",
    "missed": "MISSED 1, WRONG CAUSE 1 of 4 applicable faults on gemma-3-4b-it (skeleton)",
    "wrong": "WRONG CAUSE 1 of 3 applicable faults on gemma-3-4b-it (skeleton)",
    "not undone": "STOPPED after 2 of 6 faults on gemma-3-4b-it (skeleton): NOT UNDONE 1 of 2 applicable faults",
    "late": "STOPPED after 6 of 15 faults on gemma-3-4b-it (skeleton): NOTICED 2 of 2 applicable faults",
    "interrupted": "INTERRUPTED after 6 of 15 faults on gemma-3-4b-it (skeleton): NOTICED 2 of 2 applicable faults",
    "at once": "INTERRUPTED after 0 of 9 faults on gemma-3-4b-it (skeleton): NOTICED 0 of 0 applicable faults",
    "nothing": "NOTHING DRILLED on gemma-3-4b-it (skeleton): 4 faults, none applicable",
}
MISSED_AS_TEXT = """\
MISSED 1, WRONG CAUSE 1 of 4 applicable faults on gemma-3-4b-it (skeleton)
gemma-doctor 0.1.0  gemma-3-4b-it: gemma3_text, 34 layers (skeleton of 6: 5
  sliding W=1024, 1 full), SKELETON, float32, sdpa, cpu
transformers 5.24.0, torch 2.13.0, seed 0; prompt 60 from random ids, generated
  8, most passes at W'=64
SKELETON: random weights, unless --weights real asks

WRONG CAUSE  theta-swapped
  done      Do theta-swapped.
  expected  rope-theta as the only cause
  found     position-ids, rope-theta
  follow    cache-parity
  observed  layer 0 turns pair 3

MISSED  eps-zero
  done      Do eps-zero.
  expected  rms-norm-eps as the only cause
  found     nothing

faults   the check that was the cause, time, +N checks that follow (-v)
tokens  1 of 1
  caught       right-padding   padding-side  0.7 s
positions  0 of 1
  WRONG CAUSE  theta-swapped   position-ids, rope-theta  0.8 s  +1
mask  1 of 1
  caught       window-ignored  mask-pattern  0.7 s  +2
numerics  0 of 1
  MISSED       eps-zero        -             0.6 s

not applicable
  a-shared-layer, another-shared-layer: no layer shares

not yet covered   by a check of this release
  bos-doubled, bos-missing: wait for bos-token

score 2 of 4 applicable (50 %); 2 not applicable, 2 not yet covered
exit 1 (2 applicable faults not caught by the right check)   9.1 s: the healthy
  subject 1.2, 4 faults 2.8
"""


def test_the_text() -> None:
    assert text(REPORTS["missed"], width=80) == MISSED_AS_TEXT


@pytest.mark.parametrize("name", REPORTS)
def test_the_headline_comes_first_and_the_exit_code_last(name: str) -> None:
    for verbosity in (-1, 0, 1):
        lines = text(REPORTS[name], verbosity=verbosity).splitlines()
        assert lines[0] == HEADLINES[name] == headline(REPORTS[name])
        assert lines[-1].startswith(f"exit {REPORTS[name].exit_code} (")


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [40, 80, 120])
def test_it_fits_the_terminal(name: str, width: int) -> None:
    for line in text(REPORTS[name], width, verbosity=1).splitlines():
        assert cell_len(line) <= width


def test_nothing_is_wrapped_in_a_pipe_and_words_stand_beside_colours() -> None:
    drawn = text(REPORTS["missed"])
    assert f"\ngemma-doctor 0.1.0  {SUBJECT.replace('1b', '4b')}: gemma3_text, 34 layers (skeleton of 6" in drawn
    assert len(drawn.splitlines()) < len(MISSED_AS_TEXT.splitlines())
    colored = text(REPORTS["missed"], color=True)
    assert "\x1b[" in colored and re.sub(r"\x1b\[[0-9;]*m", "", colored) == drawn


def test_quiet_says_what_was_not_caught_and_nothing_else() -> None:
    assert len(text(ALL_CAUGHT, verbosity=-1).splitlines()) == 2
    said = text(REPORTS["missed"], verbosity=-1)
    assert "MISSED  eps-zero" in said and "right-padding" not in said and "transformers" not in said


def test_consequences_are_counted_and_named_when_asked() -> None:
    assert "  mask-pattern  0.7 s  +2\n" in text(ALL_CAUGHT)
    assert "visible-keys" not in text(ALL_CAUGHT)
    assert "+2\n          follow  visible-keys, decode-parity\n" in text(ALL_CAUGHT, verbosity=1)


def test_a_hundred_percent_is_all() -> None:
    nearly = replace(ALL_CAUGHT, drilled=(*CAUGHT * 500, MISSED))
    assert score(nearly) == "score 1000 of 1001 applicable (99 %); 0 not applicable, 0 not yet covered"
    assert score(REPORTS["late"]).endswith("(100 %); 2 not applicable, 2 not yet covered, 9 not drilled")


def test_no_text_of_the_subject_acts_on_the_terminal() -> None:
    evil = replace(WRONG, observed=EVIL, reason=EVIL, title=EVIL, causes=(EVIL,), consequences=(EVIL,))
    subject = {**ALL_CAUGHT.subject, "name": EVIL}
    apart = replace(NOT_PUT_IN[0], reason=EVIL)
    report = replace(ALL_CAUGHT, subject=subject, drilled=(evil, apart), remarks=(EVIL,), stopped=EVIL, exit_code=2)
    for width in (None, 80):
        said = text(report, width, verbosity=1)
        assert not set(said) & set("\x1b\r\x07\u202e")
        assert "[bold red]x[/bold red]" in said.replace("\n", "").replace(" ", "").replace("boldred", "bold red")
    assert document(report).isascii()


# --- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPORTS)
def test_every_report_fits_the_schema(name: str) -> None:
    written = json.loads(document(REPORTS[name]))
    assert [error.message for error in VALIDATOR.iter_errors(written)] == []
    assert written["verdict"] == re.match(r"[A-Z]+( [A-Z]+)*", headline(REPORTS[name]))[0]  # type: ignore[index]
    counts = dict(written["score"])
    not_put_in = sum(counts[name] for name in ("not_applicable", "left_out", "not_covered", "not_drilled"))
    assert counts["applicable"] == sum(counts.values()) - counts["applicable"] - not_put_in
    counts.pop("applicable")
    assert sum(counts.values()) == len(written["faults"]) + counts["not_drilled"]


def test_the_schema_is_one_and_misses_what_is_left_out() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    written = json.loads(document(ALL_CAUGHT))
    for key in schema()["required"]:
        assert not VALIDATOR.is_valid({name: value for name, value in written.items() if name != key})
    assert not VALIDATOR.is_valid({**written, "surprise": 1})
    assert not VALIDATOR.is_valid({**written, "faults": [{**written["faults"][0], "verdict": "fine"}]})


# --- flags, files, streams: the drill answers with a report ----------------------------------------------------------


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[Settings, Any]]]:
    """Let the drill answer with a report; returns the list of what it is called with."""

    def arrange(what: DrillReport | BaseException) -> list[tuple[Settings, Any]]:
        seen: list[tuple[Settings, Any]] = []

        def fake(settings: Settings, names: Any, progress: Callable[[str], None]) -> DrillReport:
            seen.append((settings, names))
            progress("fault 1 of 2: a \x1b[31mfault")
            print("a library says something")
            if isinstance(what, BaseException):
                raise what
            return what

        monkeypatch.setattr(drill, "drill", fake)
        return seen

    return arrange


@pytest.mark.parametrize("name", REPORTS)
def test_the_exit_code_is_the_reports(name: str, answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    answer(REPORTS[name])
    assert cli.main(["drill", SUBJECT]) == REPORTS[name].exit_code
    out, err = capsys.readouterr()
    assert out == text(REPORTS[name])
    assert err == "fault 1 of 2: a \\x1b[31mfault\na library says something\n"


def test_flags_reach_the_settings(answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    seen = answer(ALL_CAUGHT)
    line = "--faults window-ignored,right-padding --faults eps-times-1000 --routes beams --depth quick --seed 3 -v"
    assert cli.main(["drill", SUBJECT, *line.split()]) == 0
    (settings, names) = seen[0]
    assert names == ("window-ignored", "right-padding", "eps-times-1000")
    assert (settings.subject, settings.routes, settings.depth) == (SUBJECT, ("beams",), "quick")
    assert (settings.seed, settings.verbose) == (3, 1)


def test_the_skeleton_is_drilled_unless_the_flag_says_real(answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    seen = answer(ALL_CAUGHT)
    Path("run.yaml").write_text(
        f"subject: {SUBJECT}\nweights: real\nprompt: Hello\nmax-new-tokens: 3\nlength: 9000\nmax-length: 50\n"
        "static: true\nignore: [known-release]\noutput: report.json\noverrides: {rms_norm_eps: 1.0e-5}\n"
    )
    assert cli.main(["drill", "run.yaml"]) == 0
    settings = seen[0][0]
    assert (settings.weights, settings.output, settings.static) == ("skeleton", None, False)
    assert (settings.prompts, settings.max_new_tokens) == ((), None)
    assert (settings.length, settings.max_length) == (None, None)
    assert (settings.ignore, settings.overrides) == (("known-release",), {"rms_norm_eps": 1e-5})
    assert "takes long" not in capsys.readouterr().err
    assert cli.main(["drill", "run.yaml", "--weights", "real"]) == 0
    assert seen[1][0].weights == "real"
    assert "takes long" in capsys.readouterr().err.splitlines()[0]


def test_quiet_keeps_progress_away(answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    answer(ALL_CAUGHT)
    cli.main(["drill", SUBJECT, "-q", "--weights", "real"])
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (2, "a library says something\n")


def test_a_report_file_and_what_the_log_says(answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    answer(REPORTS["missed"])
    assert cli.main(["drill", SUBJECT, "--format", "json", "--output", "drill.json"]) == 1
    assert json.loads(Path("drill.json").read_text())["exit_code"] == 1
    assert [path.name for path in Path().iterdir()] == ["drill.json"]
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-3:-1] == [
        "WRONG CAUSE theta-swapped: rope-theta expected, position-ids, rope-theta found",
        "MISSED eps-zero: rms-norm-eps expected, nothing found",
    ]
    assert err.splitlines()[-1].endswith(
        "(2 applicable faults not caught by the right check); report written to drill.json"
    )


def test_an_end_before_anything_is_known(answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    answer(KeyboardInterrupt())
    assert cli.main(["drill", SUBJECT]) == 130
    out, err = capsys.readouterr()
    assert out == "" and "interrupted, before anything was known" in err and "Traceback" not in err
    answer(ValueError("by \x1b[31mzero"))
    assert cli.main(["drill", SUBJECT]) == 2
    err = capsys.readouterr().err
    assert "internal error, ValueError: by \\x1b[31mzero" in err and "Traceback" not in err


def test_on_a_terminal_progress_stays_on_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with drill_cli._progress(quiet=False) as progress:
        progress("fault 1 of 2: a very long name")
        progress("fault 2 of 2: b")
    said = capsys.readouterr().err
    assert "\n" not in said
    assert said.split("\r")[1::2] == ["fault 1 of 2: a ver", "fault 2 of 2: b    ", " " * 19]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """One line what is wrong, one line what to do, exit code 2, nothing on stdout."""
    assert cli.main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, second = [line for line in err.splitlines() if not line.startswith(("fault ", "the healthy "))]
    assert first.startswith("gemma-doctor: ") and second.startswith("  ")
    return err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--faults window-ignord", "--faults: there is no fault 'window-ignord'; did you mean window-ignored?"),
        ("--faults window_ignored", "there is no fault 'window_ignored'; did you mean window-ignored?"),
        ("--faults ,", "--faults is empty; it takes names"),
        ("--fault window-ignored", "there is no option --fault; did you mean --faults?"),
        ("--weights none", "--weights is 'none'"),
        ("--output missing/report.txt", "--output missing/report.txt: cannot be written"),
        ("nonsense", "there is no preset, file or folder 'nonsense'"),
    ],
)
def test_a_wrong_command_line(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capsys, "drill", *line.split())


@pytest.mark.parametrize(("line", "code"), [("drill --help", 0), ("drill x --faults window-ignord", 2), ("list", 0)])
def test_nothing_heavy_is_imported(line: str, code: int) -> None:
    program = (
        "import sys; from gemma_doctor.cli import main; code = main(sys.argv[1:]); "
        "print(code, sorted({'torch', 'transformers'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *line.split()],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr.splitlines()[-1] == f"{code} []"


def test_the_names_are_those_of_the_faults(capsys: pytest.CaptureFixture[str]) -> None:
    faults = all_faults()
    assert fault_names() == [*faults]
    assert [*described()] == [(one.id, one.caught_by, one.title) for one in faults.values()]
    assert cli.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in faults:
        assert sum(line.split(" ")[0] == name for line in lines) == 1


# --- real drills -----------------------------------------------------------------------------------------------------

FEW = "--faults window-ignored,right-padding,theta-of-one-kind"


@contextmanager
def nothing(patient: Patient) -> Iterator[None]:
    """Do nothing."""
    yield


@contextmanager
def sticky(patient: Patient) -> Iterator[None]:
    """Round one weight, and leave it so."""
    with torch.no_grad():
        patient.models[-1].get_input_embeddings().weight[20] += 1
    yield


@contextmanager
def broken(patient: Patient) -> Iterator[None]:
    """Raise."""
    raise LookupError("no such [bold]module[/bold]")
    yield


def fault(name: str, inject: Any, caught_by: str = "rope-theta") -> Fault:
    return Fault(name, caught_by, inject, lambda patient: "", Severity.ERROR)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let these be all faults there are."""
    return lambda *faults: monkeypatch.setattr(drill, "all_faults", lambda: {one.id: one for one in faults})


@pytest.fixture
def admitted_before(patient_of: Callable[..., Patient], monkeypatch: pytest.MonkeyPatch) -> None:
    """Drill the skeleton that other tests have as well."""
    monkeypatch.setattr(drill, "healthy", lambda *arguments: patient_of(SUBJECT))


def test_two_drills_give_the_same_bytes_but_for_the_timing(capsys: pytest.CaptureFixture[str]) -> None:
    documents = []
    for _ in range(2):
        assert cli.main(["drill", SUBJECT, *FEW.split(), "--format", "json"]) == 0
        documents.append(capsys.readouterr().out)
    first, second = map(json.loads, documents)
    assert VALIDATOR.is_valid(first)
    assert [one["fault"] for one in first["faults"]] == ["right-padding", "theta-of-one-kind", "window-ignored"]
    assert first["score"]["caught"] == first["score"]["applicable"] == 3
    assert documents[0].split('"timing"')[0] == documents[1].split('"timing"')[0]
    assert first.keys() == second.keys() and first["timing"].keys() == second["timing"].keys()
    assert first["passes"]["depth"] == "default"


def test_what_is_not_caught_is_exit_1(only: Any, admitted_before: None, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = replace(all_faults()["theta-of-one-kind"], caught_by="rms-norm-eps")
    only(fault("no-fault", nothing), elsewhere)
    assert cli.main(["drill", SUBJECT]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"MISSED 1, WRONG CAUSE 1 of 2 applicable faults on {SUBJECT} (skeleton)"
    assert "MISSED  no-fault" in lines
    assert lines[lines.index("WRONG CAUSE  theta-of-one-kind") + 3] == "  found     rope-theta"
    assert lines[-2].startswith("score 0 of 2 applicable (0 %)")


def test_a_check_that_the_gate_leaves_out_is_not_drilled(
    admitted_before: None, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run.yaml").write_text(f"subject: {SUBJECT}\nignore: [rope-theta]\n")
    assert cli.main(["drill", "run.yaml", "--faults", "theta-of-one-kind"]) == 2
    out = capsys.readouterr().out
    assert out.startswith(f"NOTHING DRILLED on {SUBJECT} (skeleton): 1 fault, none applicable")
    assert "theta-of-one-kind: rope-theta is left out by select or ignore" in out
    assert "exit 2 (no fault was applicable)" in out


def test_a_sick_subject_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.yaml").write_text(f"subject: {SUBJECT}\noverrides: {{rms_norm_eps: 1.0e-3}}\nexpect: {SUBJECT}\n")
    said = refused(capsys, "drill", "run.yaml")
    assert "is sick already (rms-norm-eps)" in said


def test_a_fault_that_is_not_undone_stops_the_drill(only: Any, capsys: pytest.CaptureFixture[str]) -> None:
    only(fault("a-first", sticky), fault("b-second", nothing), fault("c-third", nothing))
    assert cli.main(["drill", SUBJECT, "--format", "json"]) == 2
    written = json.loads(capsys.readouterr().out)
    assert VALIDATOR.is_valid(written)
    assert [one["verdict"] for one in written["faults"]] == ["not undone"]
    assert (written["verdict"], written["score"]["not_drilled"]) == ("STOPPED", 2)
    assert "a-first left the subject changed" in written["exit_reason"]


def test_a_fault_that_cannot_be_put_in_is_exit_2_and_the_others_are_drilled(
    only: Any, admitted_before: None, capsys: pytest.CaptureFixture[str]
) -> None:
    only(fault("a-first", broken), all_faults()["theta-of-one-kind"])
    assert cli.main(["drill", SUBJECT]) == 2
    out = capsys.readouterr().out
    assert out.startswith(f"CRASHED 1 of 2 applicable faults on {SUBJECT}")
    assert "LookupError: no such [bold]module[/bold]" in out
    assert "exit 2 (1 fault could not be drilled)" in out


def test_a_check_that_crashes_has_caught_nothing(
    only: Any, admitted_before: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crashing(config: Config, facts: ModelFacts | None) -> Iterator[Finding | Examined]:
        if facts is not None and facts.norms[0].attribute != 1e-6:
            raise KeyError("eps")
        yield Examined(1, "as usual")

    checks = [replace(x, function=crashing) if x.id == "rms-norm-eps" else x for x in registry.built_in()]
    monkeypatch.setattr(registry, "built_in", lambda: tuple(checks))
    only(all_faults()["eps-times-1000"])
    assert cli.main(["drill", SUBJECT, "--format", "json"]) == 2
    (one,) = json.loads(capsys.readouterr().out)["faults"]
    assert one["verdict"] == "crashed"
    assert one["reason"].startswith("rms-norm-eps: the check crashed: KeyError")


def test_the_time_limit_keeps_what_is_known(
    only: Any, admitted_before: None, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def slow(patient: Patient) -> Iterator[None]:
        """Let the rest of the time pass."""
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        yield time.sleep(60)

    only(fault("a-first", nothing), fault("b-second", slow))
    assert cli.main(["drill", SUBJECT, "--timeout", "500"]) == 2
    out = capsys.readouterr().out
    assert out.startswith("STOPPED after 1 of 2 faults")
    assert "exit 2 (timed out after 500 s)" in out
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def logits(patient: Patient) -> list[torch.Tensor]:
    with torch.inference_mode():
        return [model(torch.arange(10, 90)[None]).logits for model in patient.models]


@pytest.mark.parametrize("name", ["window-ignored", "eps-times-1000", "one-key-dropped"])
def test_an_interrupt_within_a_forward_leaves_the_model_as_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patients: list[Patient] = []
    before: list[torch.Tensor] = []
    hooked: list[bool] = []
    forwards = [-1]  # counted from the fault on

    def admitted(*arguments: Any, **more: Any) -> Patient:
        patients.append(admit(*arguments, **more))
        before.extend(logits(patients[0]))
        return patients[0]

    def progress(line: str) -> None:
        forwards[0] = 0 if line.startswith("fault 1 ") else forwards[0]

    look_up = torch.nn.functional.embedding

    def interrupting(*arguments: Any, **more: Any) -> Any:
        if forwards[0] >= 0:
            forwards[0] += 1
        if forwards[0] == 20:
            hooked.append(any(one._forward_pre_hooks for model in patients[0].models for one in model.modules()))
            raise KeyboardInterrupt
        return look_up(*arguments, **more)

    monkeypatch.setattr(drill, "admit", admitted)
    monkeypatch.setattr(torch.nn.functional, "embedding", interrupting)
    report = drill.drill(Settings(subject=SUBJECT, weights="skeleton"), [name], progress)
    assert hooked == [True]
    assert (report.exit_code, report.interrupted, report.drilled, report.left) == (130, True, (), 1)
    forwards[0] = -1
    (patient,) = patients
    assert all(torch.equal(one, other) for one, other in zip(before, logits(patient), strict=True))
    for model in patient.models:
        for module in model.modules():
            assert not module._forward_hooks and not module._forward_pre_hooks
            assert "forward" not in vars(module)


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_ctrl_c_in_the_middle_of_a_fault() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gemma_doctor", "drill", SUBJECT, "--format", "json"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    assert process.stderr is not None
    while not process.stderr.readline().startswith("fault 2 of "):
        assert process.poll() is None
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    written = json.loads(out)
    assert VALIDATOR.is_valid(written)
    assert (written["verdict"], written["exit_code"], written["interrupted"]) == ("INTERRUPTED", 130, True)
    assert len(written["faults"]) >= 1 and written["score"]["not_drilled"] > 0


def test_a_subject_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*arguments: Any, **more: Any) -> Patient:
        raise DoctorError("the weights are damaged", "download them again")

    monkeypatch.setattr(drill, "admit", refuse)
    assert "the weights are damaged" in refused(capsys, "drill", SUBJECT)
