"""One run's settings: flags > GEMMA_DOCTOR_* > run file > defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from gemma_doctor import prompt, run_file
from gemma_doctor.errors import DoctorError, suggest
from gemma_doctor.finding import Severity
from gemma_doctor.prompt import Prompt
from gemma_doctor.setting_values import PARSERS
from gemma_doctor.suppression import Suppression

DEFAULT_SUBJECT = "gemma-3-270m"

# Takes one line about what is under way.
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run was asked to do. Field names are the long flag names.

    Attributes:
        subject: SUBJECT as given, None for the embedded default.
        subject_source: "argument", "environment", "run file <name>" or "default".
        weights: "auto", "real" or "skeleton".
        offline: never ask the hub; what its local cache holds is all there is.
        revision: branch, tag or commit of a hub id, None = main.
        prompts: the user's prompts and conversations (from --prompt, --prompt-file, --chat or the run file), the one
            that drives the passes first; empty if there are none.
        length: tokens of the long text (see `capture/long_text.py`), None = three windows.
        max_length: the length at which the subject's own pipeline cuts its prompts, None = it does not.
        max_new_tokens: cap on the long generation, None = across the window by `margin`.
        margin: tokens to generate after the window edge.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        dtype: "auto", "float32", "bfloat16", "float16".
        attn_implementation: None = the library's own choice.
        routes: ids of the routes in use; empty for those that everyone takes.
        depth: "quick" (routes in use), "default", or "deep" (all routes, and all of them count as in use).
        figures: folder for pictures of findings that have cells, None = draw none.
        report: further reports of the same run: (format, path), in the order given.
        baseline: path of a file with what is known of a good run (see baseline.py), None = there is none.
        update_baseline: write what this run found and measured there.
        suppress: findings that do not count, and why (see suppression.py).
        severity: check id -> what its findings above a note count as.
        thresholds: check id -> name -> what a finding must exceed (see `Check.thresholds`).
        checks_dir: folders with further checks.
        no_plugins: leave out the checks of other distributions.
        overrides: keys laid over the text decoder's published mapping; None values are written as null.
        expect: a preset name, a mapping of keys (optionally with "preset"), or None.
        fail_on: severity at which the exit code becomes 1; None = never.
        origins: field name -> "flag", "environment", "run file", "default".
        run_file: path of the one that was read, None if there was none.
    """

    subject: str | None = None
    subject_source: str = "default"
    weights: str = "auto"
    offline: bool = False
    revision: str | None = None
    prompts: tuple[Prompt, ...] = ()
    length: int | None = None
    max_length: int | None = None
    max_new_tokens: int | None = None
    margin: int = 64
    device: str = "auto"
    dtype: str = "auto"
    attn_implementation: str | None = None
    seed: int = 0
    routes: tuple[str, ...] = ()
    depth: str = "default"
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: Severity | None = Severity.ERROR
    strict_skips: bool = False
    require: tuple[str, ...] = ()
    static: bool = False
    timeout: float | None = None
    format: str = "text"
    output: str | None = None
    figures: str | None = None
    report: tuple[tuple[str, str], ...] = ()
    baseline: str | None = None
    update_baseline: bool = False
    suppress: tuple[Suppression, ...] = ()
    severity: Mapping[str, Severity] = field(default_factory=dict)
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    checks_dir: tuple[str, ...] = ()
    no_plugins: bool = False
    color: str = "auto"
    verbose: int = 0
    quiet: bool = False
    debug: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict)
    expect: str | Mapping[str, Any] | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    run_file: str | None = None


RUN_FILE_ONLY = ("overrides", "suppress", "severity", "thresholds")
# a run file found by chance must not decide where something is written, or which code is run
ONLY_BY_CONFIG = ("output", "figures", "report", "update_baseline", "checks_dir")
PREFIX = "GEMMA_DOCTOR_"
PROMPTS = ("prompt", "prompt_file", "chat")  # settings that give prompts; the layer that has any of them gives them all

# --- one layer of settings: flags, environment or run file -----------------------------------------------------------


def _parse(name: str, value: object, label: str) -> Any:
    try:
        return PARSERS[name](value)
    except ValueError as error:
        raise DoctorError(f"{label} {error}", "--help shows what it takes") from None


def _from_flags(flags: Mapping[str, object]) -> dict[str, Any]:
    return {
        name: _parse(name, value, f"--{name.replace('_', '-')}" if name != "subject" else "SUBJECT")
        for name, value in flags.items()
    }


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    layer = {}
    known = {PREFIX + name.upper(): name for name in PARSERS if name not in RUN_FILE_ONLY}
    for variable, value in sorted(environment.items()):
        if variable in known and value:
            layer[known[variable]] = _parse(known[variable], value, variable)
        elif variable.startswith(PREFIX) and variable not in (*known, PREFIX + "CONFIG", PREFIX + "CACHE"):
            raise DoctorError(f"{variable} is no setting{suggest(variable, known)}", f"unset {variable}")
    named = [PREFIX + name.upper() for name in PROMPTS if name in layer]
    if len(named) > 1:
        raise DoctorError(f"{' and '.join(named)}: one prompt at most comes from the environment", "unset the others")
    return layer


def _from_run_file(path: Path, by_chance: bool) -> dict[str, Any]:
    layer = {}
    known = [name.replace("_", "-") for name in PARSERS]
    for key, value in run_file.read(path).items():
        if key not in known:
            raise DoctorError(f"{path}: unknown key {key!r}{suggest(key, known)}", f"known keys: {', '.join(known)}")
        name = key.replace("-", "_")
        if by_chance and name in ONLY_BY_CONFIG:
            raise DoctorError(
                f"{path}: may not set {key!r}, since nobody named this run file",
                f"name it: gemma-doctor check --config {path.name}",
            )
        layer[name] = _parse(name, value, f"{path}: {key!r}")
    for name in ("subject", "output", "figures", "baseline"):
        if layer.get(name) is not None:
            layer[name] = _beside(path.parent, layer[name], is_subject=name == "subject")
    for name in ("prompt_file", "chat", "checks_dir"):
        if name in layer:
            layer[name] = tuple(_beside(path.parent, one, is_subject=False) for one in layer[name])
    if "report" in layer:
        layer["report"] = tuple((form, _beside(path.parent, to, is_subject=False)) for form, to in layer["report"])
    return layer


def _beside(folder: Path, written: str, *, is_subject: bool) -> str:
    """A relative path of a run file, seen from the working folder. A subject may also be a preset or a hub id."""
    path = Path(written).expanduser()
    if written == "-" or path.is_absolute():
        return str(path)
    named_as_path = written.startswith(("./", "../", ".\\", "..\\")) or path.suffix in (".json", ".gguf")
    if is_subject and not named_as_path and not ("/" in written and (folder / path).exists()):
        return written
    return str(folder / path)


# --- all layers together ---------------------------------------------------------------------------------------------


def _choose_run_file(subject: str | None, config: str | None, folder: Path) -> tuple[Path | None, bool]:
    """The run file of this run, if there is one, and whether it was found by chance."""
    if subject is not None and Path(subject).suffix in run_file.SUFFIXES:
        if config is not None:
            raise DoctorError(f"two run files are given: {subject} and {config}", "keep one of them")
        return Path(subject), False
    if config is not None:
        return Path(config), False
    return (run_file.find(folder), True) if subject is None else (None, False)


def resolve(flags: Mapping[str, object], environment: Mapping[str, str], folder: Path | None = None) -> Settings:
    """Merge what was said on the command line, in the environment and in a run file.

    Args:
        flags: by field name, plus those in PROMPTS and "config"; only those that were given.
        environment: usually os.environ.
        folder: where a run file is looked for when none is named; the working folder if None.

    Raises:
        DoctorError: an unknown key or variable, a value of the wrong kind, a file that cannot be read, or
            strict skips without a subject.
    """
    config = flags.get("config") or environment.get(PREFIX + "CONFIG")
    given = _from_flags({name: value for name, value in flags.items() if name != "config"})
    variables = _from_environment(environment)
    argument = given.get("subject", variables.get("subject"))
    path, by_chance = _choose_run_file(argument, str(config) if config else None, folder or Path())
    written = _from_run_file(path, by_chance) if path else {}
    if path and argument == str(path):
        given.pop("subject", None)
        variables.pop("subject", None)
    return _merge({"flag": given, "environment": variables, "run file": written}, path)


def _merge(layers: dict[str, dict[str, Any]], path: Path | None) -> Settings:
    values: dict[str, Any] = {}
    names = {one.name for one in fields(Settings)} - {"origins", "subject_source", "run_file"}
    origins = dict.fromkeys(sorted(names), "default")
    for origin, layer in reversed(layers.items()):
        prompts = {name: layer.pop(name) for name in PROMPTS if name in layer}
        for name, value in ({**layer, "prompts": prompts} if prompts else layer).items():
            values[name] = value
            origins[name] = origin
    if "prompts" in values:
        values["prompts"] = prompt.given(*(values["prompts"].get(name, ()) for name in PROMPTS))
    sources = {"flag": "argument", "run file": f"run file {path}"}
    origin = origins["subject"]
    settings = Settings(
        **values,
        subject_source=sources.get(origin, origin),
        origins=origins,
        run_file=str(path) if path is not None else None,
    )
    if settings.strict_skips and settings.subject is None:
        raise DoctorError(
            "strict skips need a SUBJECT: no SUBJECT and no run file with one was found here",
            "name it: gemma-doctor check SUBJECT --strict-skips",
        )
    if settings.update_baseline and settings.baseline is None:
        raise DoctorError("--update-baseline needs to know the file", "name it: --baseline FILE --update-baseline")
    if settings.quiet and settings.verbose:
        raise DoctorError("quiet and verbose exclude each other", "keep one of -q and -v")
    return settings
