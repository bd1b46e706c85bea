"""`gemma-doctor plan`: what the key-value cache takes at a long context, and whether it fits.

Exit codes: 0 it fits, or nobody says how much memory there is; 1 it does not fit; 2 it cannot be computed.
The JSON document is described in report/plan.py.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gemma_doctor.cli import options
from gemma_doctor.cli.options import Word, option
from gemma_doctor.cli.output import Escaped, write
from gemma_doctor.errors import DoctorError

if TYPE_CHECKING:  # what these import can wait until after --help
    from gemma_doctor.evidence import DeviceMemory
    from gemma_doctor.plan import Plan

DEFAULT = "no SUBJECT given: this is the default"


def plan(
    subject: options.Subject = None,
    context: Annotated[
        Word, option("N", "Tokens per row, 1 to 1000000, prompt and generated ones. [the model's positions]")
    ] = None,
    batch: Annotated[Word, option("N", "Rows. [1]")] = None,
    dtype: Annotated[
        Word, option("auto|bfloat16|float16|float32", "Of keys and values. [auto: the published one]")
    ] = None,
    memory: Annotated[Word, option("SIZE", "Of the device, e.g. 24GB or 22.5GiB. [this machine's GPU, or RAM]")] = None,
    format: Annotated[Word, option("text|json", "Form of the plan. [text]")] = None,
) -> None:
    """Say what the KV cache takes at a long context, and if it fits."""
    flags = {"subject": subject, "dtype": dtype, "format": format}
    from gemma_doctor import budget, setting_values
    from gemma_doctor.plan import LONGEST
    from gemma_doctor.report import plan as report

    tokens = _parse("--context", context, setting_values.whole(1, LONGEST))
    rows = _parse("--batch", batch, setting_values.whole(1, 2**20))
    size = _parse("--memory", memory, budget.memory)
    made, form = _made({name: value for name, value in flags.items() if value is not None}, tokens, rows or 1, size)
    write(report.document(made) if form == "json" else report.text(made))
    raise typer.Exit(1 if made.fits(made.asked) is False else 0)


def _parse(label: str, value: Word, parse: Callable[[Any], int]) -> int | None:
    if value is None:
        return None
    try:
        return parse(value)
    except ValueError as error:
        raise DoctorError(f"{label} {error}", "gemma-doctor plan --help shows what it takes") from None


def _made(flags: dict[str, str], context: int | None, batch: int, size: int | None) -> tuple[Plan, str]:
    """The plan, and the form in which it is wanted. What a library prints on the way goes to stderr."""
    from gemma_doctor.plan import plan as make
    from gemma_doctor.settings import resolve as settings_of
    from gemma_doctor.subject import resolve

    settings = settings_of(flags, os.environ)
    aside = Escaped(sys.stderr)
    with contextlib.redirect_stdout(aside), contextlib.redirect_stderr(aside):
        subject = resolve(replace(settings, static=True))  # no weights are loaded, so none are missed
        dtype = None if settings.dtype == "auto" else settings.dtype
        made = make(subject, context, batch, dtype, _memory(size))
    by_default = (DEFAULT,) if settings.subject is None else ()
    return replace(made, notes=(*by_default, *made.notes)), settings.format


def _memory(size: int | None) -> DeviceMemory | None:
    from gemma_doctor.capture.device import this_machine
    from gemma_doctor.check import CouldNotLook
    from gemma_doctor.evidence import DeviceMemory

    if size is not None:
        return DeviceMemory("--memory", size, None)
    try:
        return this_machine()
    except CouldNotLook:
        return None
