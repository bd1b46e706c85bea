"""One run's settings: flags > GEMMA_DOCTOR_* > run file > defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gemma_doctor.finding import Severity

DEFAULT_SUBJECT = "gemma-3-270m"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run was asked to do. Field names are the long flag names.

    Attributes:
        subject: SUBJECT as given, None for the embedded default.
        subject_source: "argument", "run file <name>" or "default".
        weights: "auto", "real" or "skeleton".
        prompt: the user's prompt text (from --prompt, --prompt-file or the run file), None if there is none.
        max_new_tokens: cap on the long generation, None = across the window by `margin`.
        margin: tokens to generate after the window edge.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        dtype: "auto", "float32", "bfloat16", "float16".
        attn_implementation: None = the library's own choice.
        overrides: keys laid over the text decoder's published mapping; None values are written as null.
        expect: a preset name, a mapping of keys (optionally with "preset"), or None.
        fail_on: severity at which the exit code becomes 1; None = never.
        origins: field name -> "flag", "environment", "run file", "default".
    """

    subject: str | None = None
    subject_source: str = "default"
    weights: str = "auto"
    prompt: str | None = None
    max_new_tokens: int | None = None
    margin: int = 64
    device: str = "auto"
    dtype: str = "auto"
    attn_implementation: str | None = None
    seed: int = 0
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: Severity | None = Severity.ERROR
    strict_skips: bool = False
    require: tuple[str, ...] = ()
    static: bool = False
    timeout: float | None = None
    format: str = "text"
    output: str | None = None
    color: str = "auto"
    verbose: int = 0
    quiet: bool = False
    debug: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict)
    expect: str | Mapping[str, Any] | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
