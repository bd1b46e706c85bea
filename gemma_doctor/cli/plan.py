"""`gemma-doctor plan`: what the key-value cache takes at a long context, and whether it fits.

Exit codes: 0 it fits, or nobody says how much memory there is; 1 it does not fit; 2 it cannot be computed. Where
weights are not counted, "it" is the cache alone.
The JSON document is described in report/plan.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Annotated, Any

import typer

from gemma_doctor.cli import options
from gemma_doctor.cli.options import Word, option
from gemma_doctor.cli.output import aside, write
from gemma_doctor.errors import DoctorError


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
    offline: options.Offline = False,
    revision: options.Revision = None,
    format: Annotated[Word, option("text|json", "Form of the plan. [text]")] = None,
) -> None:
    """Say what the KV cache takes at a long context, and if it fits."""
    flags = {"subject": subject, "dtype": dtype, "offline": offline or None, "revision": revision, "format": format}
    from gemma_doctor import budget, setting_values
    from gemma_doctor.plan import LONGEST
    from gemma_doctor.plan import plan as make
    from gemma_doctor.report import plan as report
    from gemma_doctor.settings import resolve

    tokens = _parse("--context", context, _in_full(setting_values.whole(1, LONGEST)))
    rows = _parse("--batch", batch, _in_full(setting_values.whole(1, 2**20)))
    size = _parse("--memory", memory, budget.memory)
    settings = resolve({name: value for name, value in flags.items() if value is not None}, os.environ)
    with aside():
        made = make(settings, tokens, rows or 1, size)
    write(report.document(made) if options.text_or_json(settings) == "json" else report.text(made))
    raise typer.Exit(1 if made.fits(made.asked) is False else 0)


def _parse(label: str, value: Word, parse: Callable[[Any], int]) -> int | None:
    if value is None:
        return None
    try:
        return parse(value)
    except ValueError as error:
        raise DoctorError(f"{label} {error}", "gemma-doctor plan --help shows what it takes") from None


def _in_full(parse: Callable[[Any], int]) -> Callable[[Any], int]:
    """128k is 128,000 to some and 131,072 to others, so it is refused with a hint of its own."""

    def parse_in_full(value: str) -> int:
        if re.fullmatch(r"[\d.,_]+\s*[kmgt]i?", value.strip(), re.IGNORECASE):
            raise ValueError(f"is {value!r}; it takes a whole number: write it in full, such as 131072 for 128k")
        return parse(value)

    return parse_in_full
