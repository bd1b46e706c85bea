"""`pytest --gemma-doctor SUBJECT`: what people who guard their own decoder see. Each test runs pytest once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parent
SICK_FILE = """
subject: gemma-3-270m
overrides: {sliding_window: 256}
expect: gemma-3-270m
static: true
"""
IN_FAKES = (
    "sliding-window,padding-side,position-ids,rope-theta,all-masked-rows,mask-dtype,past-key-length,rms-norm-eps,"
    "long-generate"
)
WITH_FAKES = """
import sys
sys.path.insert(0, {tests!r})
from dataclasses import replace
from fake_reports import HEALTHY, SICK, result, with_results
from gemma_doctor import diagnosis
from gemma_doctor.errors import DoctorError
from gemma_doctor.finding import Outcome, Severity

calls = []

def diagnose(settings, progress):
    calls.append(settings)
    assert len(calls) == 1, "examined twice"
    {body}

diagnosis.diagnose = diagnose
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.Pytester]:
    """An empty folder; the run that is under test sees none of the options of this one."""
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    pytester.makefile(".yaml", sick=SICK_FILE)
    yield pytester


def faked(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """The examination is replaced: it does `body`, once."""
    project.makeconftest(WITH_FAKES.format(tests=str(TESTS), body=body))
    monkeypatch.setenv("GEMMA_DOCTOR_SELECT", IN_FAKES)
    monkeypatch.setenv("GEMMA_DOCTOR_STATIC", "true")  # else torch is imported, to put back what it holds


def run(project: pytest.Pytester, *words: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "no:cacheprovider", *words, timeout=300)


def test_every_check_is_a_test_and_a_finding_is_shown_as_in_the_report(project: pytest.Pytester) -> None:
    project.makepyfile("def test_mine(): pass")
    done = run(project, "--gemma-doctor", "sick.yaml")
    done.assert_outcomes(passed=7, failed=1)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(
        [
            "collected 8 items",
            "gemma-doctor sick.yaml ...F...*",
            "*_ gemma-doctor sick.yaml: sliding-window _*",
            "CAUSE  sliding-window   error   the window is not the one expected",
            "  observed  256 in preset gemma-3-270m with overrides",
            "  expected  512 (expect: preset gemma-3-270m)",
            "  do        set sliding_window to 512, or *",
            "*= gemma-doctor =*",
            "sick.yaml: SICK, in the published file alone: 1 cause, *",
        ]
    )
    done.stdout.no_fnmatch_line("*Traceback*")
    done.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_collecting_examines_nothing(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(project, monkeypatch, "raise AssertionError('examined')")
    done = run(project, "--gemma-doctor", "gemma-3-270m", "--collect-only", "-q")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["gemma-doctor gemma-3-270m::past-key-length", "9 tests collected in *"])


def test_tests_are_chosen_by_name_like_any_others(project: pytest.Pytester) -> None:
    done = run(project, "--gemma-doctor", "sick.yaml", "-k", "rope-theta", "-v")
    done.assert_outcomes(passed=1, deselected=6)
    done.stdout.fnmatch_lines(["gemma-doctor sick.yaml::rope-theta PASSED *"])
    done = run(project, "--gemma-doctor", "sick.yaml", "--deselect", "gemma-doctor sick.yaml::sliding-window")
    done.assert_outcomes(passed=6, deselected=1)


def test_several_subjects_and_one_run_file(project: pytest.Pytester) -> None:
    project.makefile(".yaml", settings="static: true\nselect: [sliding-window]\n")
    done = run(
        project, *("--gemma-doctor-config", "settings.yaml"), *("--gemma-doctor", "gemma-3-270m"), "--gemma-doctor=x"
    )
    assert done.ret == pytest.ExitCode.INTERRUPTED  # a subject that does not exist
    done = run(
        project,
        *("--gemma-doctor-config", "settings.yaml", "--gemma-doctor", "gemma-3-270m", "--gemma-doctor", "gemma-2-2b"),
    )
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["gemma-3-270m: *0 not evaluated*", "gemma-2-2b: *0 not evaluated*"])


def test_what_could_not_be_looked_at_is_skipped_with_its_reason(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    faked(project, monkeypatch, "return SICK")
    done = run(project, "--gemma-doctor", "gemma-3-270m", "-rs", "-W", "error")
    done.assert_outcomes(failed=2, passed=5, skipped=2)
    done.stdout.fnmatch_lines(["SKIPPED * mask-dtype is n/a: the mask is None in every pass"])
    done.stdout.fnmatch_lines(["SKIPPED * rms-norm-eps was not evaluated: no norm was found"])


def test_a_consequence_names_its_cause(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(project, monkeypatch, "return SICK")
    done = run(project, "--gemma-doctor", "gemma-3-270m", "-k", "long-generate")
    done.stdout.fnmatch_lines(["error  long-generate *", "  follows   from past-key-length, in the same run: mend *"])


def test_a_warning_fails_nothing_and_stands_in_the_summary(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    faked(project, monkeypatch, "return SICK")
    done = run(project, "--gemma-doctor", "gemma-3-270m", "-k", "padding-side", "-W", "error")
    done.assert_outcomes(passed=1, deselected=8)
    done.stdout.fnmatch_lines(["gemma-3-270m: warning padding-side: tokenizer pads right; *; observed right"])


def test_fail_on_decides_what_fails(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(project, monkeypatch, "return replace(SICK, fail_on=Severity.WARNING)")
    run(project, "--gemma-doctor", "gemma-3-270m", "-k", "padding-side").assert_outcomes(failed=1, deselected=8)
    faked(project, monkeypatch, "return replace(SICK, fail_on=None)")
    run(project, "--gemma-doctor", "gemma-3-270m").assert_outcomes(passed=7, skipped=2)


def test_a_check_that_crashed_is_an_error(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    crashed = "result('rope-theta', 'positions', Outcome.ERROR, said='the check crashed: KeyError: 3')"
    faked(project, monkeypatch, f"return with_results(HEALTHY, {crashed}, result('mask-dtype', 'mask', Outcome.PASS))")
    done = run(project, "--gemma-doctor", "gemma-3-270m")
    done.assert_outcomes(passed=8, errors=1)
    done.stdout.fnmatch_lines(["rope-theta: the check crashed: KeyError: 3"])


def test_what_is_demanded_may_not_be_skipped(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(project, monkeypatch, "return SICK")
    monkeypatch.setenv("GEMMA_DOCTOR_REQUIRE", "rms-norm-eps")
    done = run(project, "--gemma-doctor", "gemma-3-270m", "-k", "rms-norm-eps")
    done.assert_outcomes(errors=1, deselected=8)
    done.stdout.fnmatch_lines(["rms-norm-eps is demanded and was not evaluated: no norm was found"])


def test_a_subject_that_does_not_exist_is_said_in_two_lines_before_any_test_runs(project: pytest.Pytester) -> None:
    project.makepyfile("def test_mine(): pass")
    done = run(project, "--gemma-doctor", "./nowhere")
    done.assert_outcomes(errors=1)
    assert done.ret == pytest.ExitCode.INTERRUPTED
    done.stdout.fnmatch_lines(
        ["*_ ERROR collecting gemma-doctor ./nowhere _*", "there is no preset, file or folder './nowhere'"]
    )


def test_an_examination_that_cannot_be_made_is_one_error_and_the_other_tests_are_skipped(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    faked(project, monkeypatch, "raise DoctorError('no memory for it', 'take a smaller one')")
    done = run(project, "--gemma-doctor", "gemma-3-270m", "-rs")
    done.assert_outcomes(errors=1, skipped=8)
    done.stdout.fnmatch_lines(["gemma-3-270m could not be examined: no memory for it", "take a smaller one"])
    done.stdout.fnmatch_lines(["SKIPPED * not examined: no memory for it"])


def test_an_examination_that_looked_at_nothing_is_an_error(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = "tuple(replace(one, outcome=Outcome.SKIPPED, reason='why', findings=()) for one in SICK.results)"
    faked(project, monkeypatch, f"return replace(SICK, results={nothing}, exit_code=2)")
    done = run(project, "--gemma-doctor", "gemma-3-270m")
    done.assert_outcomes(errors=1, skipped=8)
    done.stdout.fnmatch_lines(["gemma-3-270m could not be examined: no check could look at anything"])


def test_an_interrupted_examination_ends_the_session(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(project, monkeypatch, "return replace(HEALTHY, interrupted=True, exit_code=130)")
    assert run(project, "--gemma-doctor", "gemma-3-270m").ret == pytest.ExitCode.INTERRUPTED


def test_hostile_text_of_a_subject_cannot_act_on_the_terminal(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = "tuple(replace(f, title='a\\x1b[2Jb') for f in one.findings)"
    results = f"tuple(replace(one, findings={hostile}, reason='c\\x1b[2Jd') for one in SICK.results)"
    faked(project, monkeypatch, f"return replace(SICK, results={results})")
    done = run(project, "--gemma-doctor", "gemma-3-270m", "-rs")
    done.stdout.fnmatch_lines(["CAUSE  past-key-length   error   a\\x1b[[]2Jb"])
    assert "\x1b[2J" not in done.stdout.str()


def test_workers_of_xdist_examine_a_subject_once_when_its_tests_stay_together(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The faked examination refuses a second call in one process; the mark that it leaves shows one in another."""
    faked(project, monkeypatch, "open('examined', 'x').close(); return SICK")
    done = run(project, "--gemma-doctor", "gemma-3-270m", "-n", "2", "--dist", "loadfile")
    done.assert_outcomes(failed=2, passed=5, skipped=2)
    done.stdout.fnmatch_lines(["gemma-3-270m: SICK: 1 cause, *"])


def test_a_session_that_asks_for_nothing_imports_nothing_heavy(project: pytest.Pytester) -> None:
    project.makepyfile(
        "import sys\n"
        "def test_imports():\n"
        "    ours = {one for one in sys.modules if one.startswith('gemma_doctor')}\n"
        "    assert ours == {'gemma_doctor', 'gemma_doctor.pytest_plugin'}\n"
        "    assert not {'torch', 'transformers', 'numpy', 'rich', 'yaml'} & {*sys.modules}\n"
    )
    run(project, "-p", "no:hypothesispytest", "-p", "no:anyio").assert_outcomes(passed=1)


def test_a_static_examination_imports_no_torch(project: pytest.Pytester) -> None:
    project.makeconftest(
        "import sys\ndef pytest_sessionfinish():\n    print('heavy', {'torch', 'transformers'} & {*sys.modules})\n"
    )
    run(project, "--gemma-doctor", "sick.yaml").stdout.fnmatch_lines(["*heavy set()"])


def test_it_can_be_switched_off(project: pytest.Pytester) -> None:
    project.makepyfile("def test_mine(): pass")
    run(project, "-p", "no:gemma_doctor").assert_outcomes(passed=1)


def test_the_fixture_examines_a_model_in_memory(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest, torch
        from transformers import Gemma3Config, Gemma3ForCausalLM, Gemma3TextConfig
        from gemma_doctor.assertions import assert_healthy

        @pytest.fixture
        def model():
            torch.manual_seed(0)
            return Gemma3ForCausalLM(Gemma3TextConfig(
                vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
                num_key_value_heads=1, head_dim=8, sliding_window=8, max_position_embeddings=128,
                layer_types=["sliding_attention", "full_attention"])).eval()

        def test_healthy(gemma_doctor_diagnose, model):
            assert_healthy(gemma_doctor_diagnose(model, select=["mask"], depth="quick"))

        def test_sick(gemma_doctor_diagnose, model):
            expected = {"sliding_window": 512}
            assert_healthy(gemma_doctor_diagnose(model, select=["sliding-window"], expect=expected, depth="quick"))
        """
    )
    done = run(project, "-W", "error")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["E   *CAUSE  sliding-window   error *", "*= gemma-doctor =*", "*: HEALTHY *"])
