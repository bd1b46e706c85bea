"""Settings: who overrules whom, what each key takes, and what a run file may not do."""

from __future__ import annotations

import io
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gemma_doctor.errors import DoctorError
from gemma_doctor.finding import Severity
from gemma_doctor.settings import PARSERS, Settings, resolve


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def refusal(folder: Path, environment: dict[str, str] | None = None, **flags: object) -> DoctorError:
    with pytest.raises(DoctorError) as caught:
        resolve(flags, environment or {}, folder)
    assert caught.value.hint
    assert "\n" not in caught.value.message + caught.value.hint
    return caught.value


def texts_of(settings: Settings) -> list[str]:
    return [one.text for one in settings.prompts]


# --- who overrules whom ----------------------------------------------------------------------------------------------


def test_nothing_said_means_the_defaults(tmp_path: Path) -> None:
    settings = resolve({}, {}, tmp_path)
    assert settings.subject is None
    assert settings.subject_source == "default"
    assert set(settings.origins.values()) == {"default"}
    assert (settings.weights, settings.device, settings.dtype, settings.format) == ("auto", "auto", "auto", "text")
    assert (settings.margin, settings.seed, settings.fail_on) == (64, 0, Severity.ERROR)
    assert settings.depth == "default"
    named = {"weights", "device", "dtype", "format", "color", "margin", "fail_on", "origins", "subject_source", "depth"}
    others = {one.name: getattr(settings, one.name) for one in fields(Settings) if one.name not in named}
    assert not any(others.values()), others


def test_flag_over_environment_over_run_file_over_default(tmp_path: Path) -> None:
    run = write(tmp_path / "run.yaml", "margin: 1\nseed: 1\ndtype: float16\nsubject: gemma-2-2b\n")
    settings = resolve({"config": run, "margin": "3"}, {"GEMMA_DOCTOR_MARGIN": "2", "GEMMA_DOCTOR_SEED": "2"}, tmp_path)
    assert (settings.margin, settings.seed, settings.dtype, settings.device) == (3, 2, "float16", "auto")
    origins = settings.origins
    assert [origins[name] for name in ("margin", "seed", "dtype", "device")] == [
        "flag",
        "environment",
        "run file",
        "default",
    ]
    assert settings.subject == "gemma-2-2b"
    assert settings.subject_source == f"run file {run}"


def test_every_setting_has_an_origin(tmp_path: Path) -> None:
    named = set(PARSERS) - {"prompt", "prompt_file", "chat"}
    assert set(resolve({}, {}, tmp_path).origins) == named | {"prompts"}


def test_an_argument_beats_the_run_files_subject(tmp_path: Path) -> None:
    run = write(tmp_path / "run.yaml", "subject: gemma-2-2b\nmargin: 5\n")
    settings = resolve({"config": run, "subject": "gemma-3-270m"}, {}, tmp_path)
    assert (settings.subject, settings.subject_source, settings.margin) == ("gemma-3-270m", "argument", 5)


def test_a_prompt_on_the_command_line_beats_the_run_files_prompt_file(tmp_path: Path) -> None:
    run = write(tmp_path / "run.yaml", "prompt-file: missing.txt\n")
    assert texts_of(resolve({"config": run, "prompt": "hello"}, {}, tmp_path)) == ["hello"]


def test_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    assert resolve({}, {"GEMMA_DOCTOR_MARGIN": ""}, tmp_path).margin == 64


# --- which run file --------------------------------------------------------------------------------------------------


def test_a_run_file_as_subject(tmp_path: Path) -> None:
    run = write(tmp_path / "run.yml", "subject: gemma-2-2b\noutput: report.txt\n")
    settings = resolve({"subject": run}, {}, tmp_path)
    assert (settings.subject, settings.subject_source) == ("gemma-2-2b", f"run file {run}")
    assert settings.output == str(tmp_path / "report.txt")


def test_a_dash_is_stdout_and_overrules_the_run_file(tmp_path: Path) -> None:
    run = write(tmp_path / "run.yml", "output: report.txt\n")
    assert resolve({"config": run, "output": "-"}, {}, tmp_path).output is None
    run = write(tmp_path / "run.yml", "output: '-'\n")
    assert resolve({"config": run}, {}, tmp_path).output is None


def test_a_run_file_named_by_the_environment(tmp_path: Path) -> None:
    run = write(tmp_path / "run.yaml", "margin: 9\n")
    assert resolve({}, {"GEMMA_DOCTOR_CONFIG": run}, tmp_path).margin == 9


def test_the_run_file_of_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "gemma-doctor.yaml", "subject: gemma-2-2b\n")
    write(tmp_path / "pyproject.toml", "[tool.gemma-doctor]\nsubject = 'gemma-3-1b-it'\n")
    settings = resolve({}, {}, tmp_path)
    assert settings.subject == "gemma-2-2b"
    assert settings.subject_source.endswith("gemma-doctor.yaml")
    assert resolve({"subject": "gemma-3-270m"}, {}, tmp_path).subject_source == "argument"


def test_the_table_of_a_pyproject(tmp_path: Path) -> None:
    write(
        tmp_path / "pyproject.toml", "[tool.gemma-doctor]\nsubject = 'gemma-3-1b-it'\noverrides = {rms_norm_eps = 1e-3}"
    )
    settings = resolve({}, {}, tmp_path)
    assert (settings.subject, settings.overrides) == ("gemma-3-1b-it", {"rms_norm_eps": 1e-3})


@pytest.mark.parametrize("text", ["[tool.other]\nx = 1\n", "this is { no toml", "[tool]\ngemma-doctorx = 1\n"])
def test_a_pyproject_that_is_not_for_us_is_left_alone(tmp_path: Path, text: str) -> None:
    write(tmp_path / "pyproject.toml", text)
    assert resolve({}, {}, tmp_path).subject_source == "default"


@pytest.mark.parametrize(
    ("name", "text"), [("gemma-doctor.yaml", "output: x\n"), ("pyproject.toml", "[tool.gemma-doctor]\noutput='x'")]
)
def test_a_run_file_found_by_chance_may_not_say_where_to_write(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path / name, text)
    error = refusal(tmp_path)
    assert "may not set 'output'" in error.message
    assert f"--config {name}" in error.hint
    assert resolve({"config": str(tmp_path / name)}, {}, tmp_path).output == str(tmp_path / "x")


def test_two_run_files_are_one_too_many(tmp_path: Path) -> None:
    assert "two run files" in refusal(tmp_path, subject="a.yaml", config="b.yaml").message


def test_paths_in_a_run_file_are_seen_from_the_run_file(tmp_path: Path) -> None:
    write(tmp_path / "in" / "my-model" / "config.json", "{}")
    write(tmp_path / "in" / "org" / "model" / "config.json", "{}")
    write(tmp_path / "in" / "prompt.txt", "hello")

    def subject_of(written: str) -> str | None:
        run = write(tmp_path / "in" / "run.yaml", f"subject: {written}\nprompt-file: prompt.txt\n")
        settings = resolve({"config": run}, {}, tmp_path)
        assert texts_of(settings) == ["hello"]
        return settings.subject

    assert subject_of("./my-model") == str(tmp_path / "in" / "my-model")
    assert subject_of("org/model") == str(tmp_path / "in" / "org" / "model")
    assert subject_of("config.json") == str(tmp_path / "in" / "config.json")
    assert subject_of("/abs/model") == "/abs/model"
    assert subject_of("google/gemma-3-1b-it") == "google/gemma-3-1b-it"
    assert subject_of("gemma-3-270m") == "gemma-3-270m"


# --- what a run file says --------------------------------------------------------------------------------------------


def of(tmp_path: Path, text: str) -> Settings:
    return resolve({"config": write(tmp_path / "run.yaml", text)}, {}, tmp_path)


def test_all_keys(tmp_path: Path) -> None:
    settings = of(
        tmp_path,
        "max-new-tokens: 10\nfail-on: never\nstrict-skips: true\nsubject: gemma-3-270m\nselect: [mask, rope-theta]\n"
        "ignore: mask-dtype, cache\ntimeout: 1.5\noverrides: {sliding_window: null}\nexpect: gemma-3-270m\n"
        "device: cuda:1\nattn-implementation: eager\nweights: real\n",
    )
    assert settings.fail_on is None
    assert settings.strict_skips
    assert settings.select == ("mask", "rope-theta")
    assert settings.ignore == ("mask-dtype", "cache")
    assert settings.overrides == {"sliding_window": None}
    assert (settings.max_new_tokens, settings.timeout, settings.expect) == (10, 1.5, "gemma-3-270m")


@pytest.mark.parametrize(("text", "number"), [("1e-06", 1e-6), ("1.0e-6", 1e-6), ("1E+6", 1e6), ("-2e3", -2e3)])
def test_numbers_are_written_as_in_json(tmp_path: Path, text: str, number: float) -> None:
    assert of(tmp_path, f"overrides: {{x: {text}}}").overrides["x"] == number
    assert of(tmp_path, f"overrides: {{x: '{text}'}}").overrides["x"] == text


def test_an_empty_run_file_is_none(tmp_path: Path) -> None:
    assert of(tmp_path, "# nothing yet\n").margin == 64


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("margn: 3", "unknown key 'margn'; did you mean margin?"),
        ("max_new_tokens: 3", "unknown key 'max_new_tokens'; did you mean max-new-tokens?"),
        ("margin: 3\nmargin: 4", "line 2: not valid YAML (the key 'margin' stands twice)"),
        ("margin: [", "not valid YAML"),
        ("a: !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("overrides: {a: 1, b: {c: 1, c: 2}}", "the key 'c' stands twice"),
        ("[1, 2]", "no mapping of keys to values"),
        ("1: 2", "no mapping of keys to values"),
        ("margin: many", "'margin' is 'many'; it takes a whole number"),
        ("margin: true", "'margin' is True; it takes a whole number"),
        ("margin: 0", "'margin' is 0; it takes a number of at least 1"),
        ("margin: 1.5", "'margin' is 1.5; it takes a whole number"),
        ("seed: -1", "'seed' is -1; it takes a number from 0 to 4294967295"),
        ("dtype: float23", "'dtype' is 'float23'; it takes auto, float32, bfloat16 or float16; did you mean float32?"),
        ("fail-on: bad", "it takes note, warning, error or never"),
        ("fail-on: no", "'fail-on' is False; it takes note"),
        ("timeout: 0", "'timeout' is 0; it takes a number of seconds above 0"),
        ("timeout: .nan", "it takes a number of seconds above 0"),
        ("static: maybe", "'static' is 'maybe'; it takes true or false"),
        ("device: gpu", "'device' is 'gpu'; it takes auto, cpu, cuda"),
        ("select: [1]", "it takes a list of names"),
        ("select: ''", "is empty; it takes names"),
        ("depth: dep", "'depth' is 'dep'; it takes quick, default or deep; did you mean deep?"),
        ("prompt: '  '", "'prompt' is empty"),
        ("subject: 3", "'subject' is 3; it takes a text"),
        ("overrides: [a]", "it takes a mapping of configuration keys"),
        ("overrides: {1: 2}", "it takes a mapping of configuration keys"),
        ("expect: 7", "it takes a mapping of configuration keys"),
        ("prompt: [a, '']", "'prompt' is empty"),
        ("prompt: [a, 1]", "it takes a text, or a list of texts"),
        ("prompt: []", "it takes a text, or a list of texts"),
        ("prompt: {a: b}", "it takes a text, or a list of texts"),
        ("prompt: [a, b, ' a ']", "given prompt 3: says the same as the given prompt 1"),
        ("chat: missing.yaml", "missing.yaml: cannot be read (No such file or directory)"),
        ("chats: missing.yaml", "unknown key 'chats'; did you mean chat?"),
        ("quiet: true\nverbose: 1", "quiet and verbose exclude each other"),
        ("config: other.yaml", "unknown key 'config'"),
    ],
)
def test_a_wrong_run_file_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    run = write(tmp_path / "run.yaml", text)
    assert said in refusal(tmp_path, config=run).message


@pytest.mark.parametrize("content", [b"\xff\xfe", None], ids=["not UTF-8", "missing"])
def test_a_run_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "run.yaml"
    if content is not None:
        path.write_bytes(content)
    assert str(path) in refusal(tmp_path, config=str(path)).message


def test_a_named_pyproject_without_our_table(tmp_path: Path) -> None:
    project = write(tmp_path / "pyproject.toml", "[tool.other]\n")
    assert "no table [tool.gemma-doctor]" in refusal(tmp_path, config=project).message


# --- flags and variables ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("fail_on", "warning", Severity.WARNING),
        ("select", ["mask,cache", "rope-theta"], ("mask", "cache", "rope-theta")),
        ("timeout", "2.5", 2.5),
        ("device", "cuda", "cuda"),
        ("verbose", 2, 2),
    ],
)
def test_flags_are_texts_or_lists(tmp_path: Path, name: str, text: object, value: object) -> None:
    assert getattr(resolve({name: text}, {}, tmp_path), name) == value


@pytest.mark.parametrize(("text", "value"), [("1", True), ("TRUE", True), ("off", False), ("0", False)])
def test_switches_in_the_environment(tmp_path: Path, text: str, value: bool) -> None:
    assert resolve({}, {"GEMMA_DOCTOR_STATIC": text}, tmp_path).static is value


def test_wrong_flags_and_variables_are_named_as_they_were_written(tmp_path: Path) -> None:
    assert refusal(tmp_path, max_new_tokens="x").message.startswith("--max-new-tokens is 'x'")
    assert refusal(tmp_path, subject="").message == "SUBJECT is empty"
    assert refusal(tmp_path, {"GEMMA_DOCTOR_SEED": "x"}).message.startswith("GEMMA_DOCTOR_SEED is 'x'")
    misspelt = refusal(tmp_path, {"GEMMA_DOCTOR_STRICT_SKIP": "1"})
    assert "did you mean GEMMA_DOCTOR_STRICT_SKIPS?" in misspelt.message


def test_strict_skips_need_a_subject(tmp_path: Path) -> None:
    assert "SUBJECT" in refusal(tmp_path, strict_skips=True).message
    assert resolve({"strict_skips": True, "subject": "gemma-3-270m"}, {}, tmp_path).strict_skips
    write(tmp_path / "gemma-doctor.yaml", "strict-skips: true\n")
    assert "SUBJECT" in refusal(tmp_path).message


def test_the_prompt_from_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
    settings = resolve({"prompt_file": "-"}, {}, tmp_path)
    assert texts_of(settings) == ["from a pipe\n"]
    assert settings.origins["prompts"] == "flag"


@pytest.mark.parametrize("content", [b"", b"\xff", None])
def test_a_prompt_file_that_gives_no_prompt(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "prompt.txt"
    if content is not None:
        path.write_bytes(content)
    assert str(path) in refusal(tmp_path, prompt_file=str(path)).message


def test_a_value_is_never_executed_or_coerced_by_surprise(tmp_path: Path) -> None:
    expected: dict[str, Any] = {"rope_scaling": {"factor": 8.0}, "layer_types": ["full_attention"], "on": 1}
    text = "expect: {rope_scaling: {factor: 8.0}, layer_types: [full_attention], 'on': 1}"
    assert of(tmp_path, text).expect == expected


def test_aliases_are_refused(tmp_path: Path) -> None:
    """Thirty lines of them could stand for a billion values."""
    lines = ["a0: &a0 [1]", *(f"a{one}: &a{one} [*a{one - 1}, *a{one - 1}]" for one in range(1, 30))]
    run = write(tmp_path / "run.yaml", "subject: gemma-2-2b\noverrides:\n  " + "\n  ".join(lines) + "\n")
    assert "line 4: not valid YAML (aliases are not taken" in refusal(tmp_path, config=run).message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("thresholds: {cache-parity: {noise_floors: yes}}", "'thresholds' of cache-parity: noise_floors is True; it"),
        ("thresholds: {cache-parity: 3}", "'thresholds' of cache-parity is 3; it takes a mapping"),
        ("severity: {cache-parity: bad}", "'severity' of cache-parity is 'bad'; it takes note, warning or error"),
    ],
)
def test_a_wrong_value_within_a_mapping_says_where_it_stands(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path, config=write(tmp_path / "run.yaml", f"subject: gemma-2-2b\n{text}\n")).message
