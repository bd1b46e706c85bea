"""`diagnose`: the examination as a function, on a model that a program holds in memory."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gemma_doctor import prompt as prompts
from gemma_doctor.errors import DoctorError
from gemma_doctor.finding import Report
from gemma_doctor.setting_values import PARSERS
from gemma_doctor.settings import Progress, Settings

if TYPE_CHECKING:
    import torch


def diagnose(
    model: torch.nn.Module | str | os.PathLike[str],
    tokenizer: Any | None = None,
    *,
    prompt: str | Sequence[str] = (),
    expect: str | Mapping[str, Any] | None = None,
    routes: Sequence[str] = (),
    depth: str = "default",
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    require: Sequence[str] = (),
    strict_skips: bool = False,
    fail_on: str = "error",
    severity: Mapping[str, str] | None = None,
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    suppress: Sequence[Mapping[str, Any]] = (),
    checks_dir: Sequence[str] = (),
    no_plugins: bool = False,
    max_new_tokens: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Examine a decoder that is in memory: what does the token at each position really read?

    A fine-tune, with PEFT's adapters or without, quantised, compiled, spread over devices: it is examined as it is,
    where it is, in eval mode. Afterwards model, tokenizer and process are as they were (see docs/python-api.md).
    Nothing is printed. One examination runs at a time; others wait.

    Args:
        model: a causal language model of transformers, or a wrapper around one (`torch.compile`, `PeftModel`, data
            parallel); or a SUBJECT as `gemma-doctor check` takes it.
        tokenizer: the one that the model is used with, or a processor that has one; without it the checks of tokens are
            n/a, and prompts are random ids.
        prompt: text that is run instead of the built-in one, or several.
        expect: what the configuration should be: a preset's name, or a mapping of keys (optionally with "preset").
        routes: ways of generating that are in use; empty for those that everyone takes.
        depth: "quick", "default" or "deep": which routes are looked at.
        select, ignore: ids of checks, or groups of them, to run and to leave out.
        require: ids or groups whose checks must not be skipped; else the exit code is 2.
        strict_skips: the exit code is 2 if any check was skipped.
        fail_on: "note", "warning", "error" or "never": the least severity that makes the exit code 1.
        severity: by check, what its findings count as: "note", "warning" or "error".
        thresholds: by check and name, what a finding must exceed.
        suppress: findings that do not count, each a mapping with "check" and "reason" (and "title", "until").
        checks_dir: folders with further checks.
        no_plugins: leave out the checks of other distributions.
        max_new_tokens: cap on the long generation; None for across the window.
        seed: of random ids and draws.
        progress: called with one line of text now and then.

    Returns:
        The report. Its `exit_code` is what `gemma-doctor check` would return; `gemma_doctor.render(report, "text")` is
        what it would print.

    Raises:
        DoctorError: there is nothing here that can be examined, or an argument cannot be.
        KeyboardInterrupt: as it came, after everything was put back.
    """
    given = {
        **{"prompt": [prompt] if isinstance(prompt, str) else prompt, "expect": expect, "routes": routes},
        **{"depth": depth, "select": select, "ignore": ignore, "require": require, "strict_skips": strict_skips},
        **{"fail_on": fail_on, "severity": severity, "thresholds": thresholds, "suppress": suppress},
        **{"checks_dir": checks_dir, "no_plugins": no_plugins, "max_new_tokens": max_new_tokens, "seed": seed},
    }
    settings = _settings(given)
    from gemma_doctor.restored import process_restored  # imports torch

    with process_restored():
        report = _examined(model, tokenizer, settings, progress or _silent)
    if report.interrupted:
        raise KeyboardInterrupt
    return report


def _settings(given: Mapping[str, Any]) -> Settings:
    """Neither the environment nor a run file is read: the call says it all.

    Raises:
        DoctorError: a value of the wrong kind.
    """
    values: dict[str, Any] = {}
    for name, value in given.items():
        if value is None or value in ((), [], {}):
            continue
        try:
            values[name] = PARSERS[name](value)
        except ValueError as error:
            raise DoctorError(f"diagnose(): {name} {error}", "help(gemma_doctor.diagnose) says what it takes") from None
    texts = values.pop("prompt", ())
    return Settings(subject_source="argument", prompts=prompts.given(texts, (), ()), **values)


def _examined(model: Any, tokenizer: Any, settings: Settings, progress: Progress) -> Report:
    from gemma_doctor import compat, diagnosis

    with compat.quiet():
        if not isinstance(model, (str, os.PathLike)):
            return _examined_in_memory(model, tokenizer, settings, progress)
        if tokenizer is not None:
            raise DoctorError("diagnose(): a SUBJECT comes with its own tokenizer", "leave the tokenizer out")
        return diagnosis.diagnose(replace(settings, subject=str(model)), progress)


def _examined_in_memory(given: Any, tokenizer: Any, settings: Settings, progress: Progress) -> Report:
    import torch

    from gemma_doctor import diagnosis, in_memory
    from gemma_doctor.restored import at_rest, settings_kept

    started = time.perf_counter()
    checks = diagnosis.chosen_checks(settings)
    model, remarks = in_memory.unwrapped(given)
    own = in_memory.tokenizer_of(tokenizer)
    torch.manual_seed(settings.seed)
    with at_rest(model), settings_kept(own):
        patient = in_memory.patient_of(model, own, settings, remarks)
        return diagnosis.diagnose_patient(patient, settings, progress, checks, {}, started)


def _silent(_line: str) -> None:
    """Where nobody asked for progress."""
