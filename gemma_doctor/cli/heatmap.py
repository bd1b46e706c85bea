"""`gemma-doctor heatmap`: what a position really reads."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemma_doctor.cli import options
from gemma_doctor.cli.deadline import deadline_or_error
from gemma_doctor.cli.options import Word, Words, option, switch
from gemma_doctor.cli.output import Destination, aside, say, terminal_width, wants_color, write
from gemma_doctor.errors import DoctorError

if TYPE_CHECKING:
    from gemma_doctor.charts.chart import Chart
    from gemma_doctor.settings import Settings
    from gemma_doctor.view import View

BLOCKS = "▁█"
OWN = ("pos", "layers", "heads", "kind", "rows_at", "scale", "pads", "out", "force")


def heatmap(
    subject: options.Subject = None,
    pos: Annotated[
        Word, option("P", "Position: an index (1000, -1) or a slice (990:1010). [the last of the text]")
    ] = None,
    layers: Annotated[Word, option("all|sliding|full|0,5", "Layers to show. [all]")] = None,
    heads: Annotated[Word, option("mean|max|all|0,3", "Heads to show. [mean]")] = None,
    kind: Annotated[
        Word,
        option(
            "attention|mask|influence",
            "Weights that were read; cells that may be read; or how strongly the logits depend on each token through "
            "the whole stack. [attention]",
        ),
    ] = None,
    rows_at: Annotated[
        Word, option("decode|prefill", "Read at decode steps, as generation does, or at prefill, as scoring. [decode]")
    ] = None,
    scale: Annotated[Word, option("log|linear", "Scale of the colours. [log]")] = None,
    pads: Annotated[Word, option("N", "Put N left pads in front of the text. [0]")] = None,
    out: Annotated[
        Word, option("FILE", "Write it there, as its suffix says: .png .svg .pdf .html .json .csv .npz. [terminal]")
    ] = None,
    force: Annotated[bool, switch("--force", "Overwrite FILE.")] = False,
    config: options.Config = None,
    weights: options.Weights = None,
    offline: options.Offline = False,
    revision: options.Revision = None,
    prompt: Annotated[Words, option("TEXT", "Prompt to show.")] = None,
    prompt_file: Annotated[Words, option("FILE", "File with the prompt; - is stdin.")] = None,
    chat: Annotated[Words, option("FILE", "Conversation to show, as check takes it.")] = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    attn_implementation: options.AttnImplementation = None,
    seed: options.Seed = None,
    timeout: options.Timeout = None,
    color: options.Color = None,
    quiet: Annotated[bool, switch("-q --quiet", "No progress.")] = False,
    debug: options.Debug = False,
) -> None:
    """Show what a position really reads, in the kernel that runs.

    Exit code 1: it reads what it should not, or is not handed what it should read.
    """
    given = {name: value for name, value in locals().items() if value not in (None, False, [])}
    from gemma_doctor.settings import resolve
    from gemma_doctor.view import view

    asked = view({name: given.pop(name) for name in OWN if name in given and name not in ("out", "force")})
    path = str(given.pop("out")) if "out" in given else None
    given.pop("force", None)
    form = _form(path, force)
    settings = resolve(given, os.environ)
    from gemma_doctor import charts
    from gemma_doctor.charts import layout
    from gemma_doctor.report.escape import escape

    with options.ending(settings.debug), Destination(path, "--out") as destination:
        chart = _read(settings, asked)
        if form is None:
            write(_on_terminal(chart, settings))
        else:
            destination.write(charts.render(chart, form))
            write(f"{path if terminal_width() is None else escape(str(path))}\n")
    wrong = list(layout.faults(chart))
    for sentence in wrong if form is not None else ():
        say(f"WRONG  {sentence}")
    raise typer.Exit(1 if wrong else 0)


def _form(path: str | None, force: bool) -> str | None:
    """What the suffix of a path asks for, None for the terminal.

    Raises:
        DoctorError: no such form, or the file is there already.
    """
    if path is None:
        return None
    from gemma_doctor.charts import FORMATS

    form = Path(path).suffix.removeprefix(".").lower()
    if form not in FORMATS:
        raise DoctorError(
            f"--out {path}: its suffix names no form", f"one of {', '.join('.' + one for one in FORMATS)}"
        )
    if Path(path).expanduser().exists() and not force:
        raise DoctorError(f"--out {path}: is there already", "--force overwrites it")
    return form


def _read(settings: Settings, asked: View) -> Chart:
    progress = (lambda line: None) if settings.quiet else say
    with deadline_or_error(settings.timeout), aside():
        from gemma_doctor.heatmap import heatmap

        return heatmap(settings, asked, progress)


def _on_terminal(chart: Chart, settings: Settings) -> str:
    from gemma_doctor.charts import terminal

    width = terminal_width()
    color = wants_color(settings.color, os.environ, is_terminal=width is not None)
    return terminal.render(chart, width, color, blocks=_has_blocks(sys.stdout.encoding))


def _has_blocks(encoding: str | None) -> bool:
    try:
        BLOCKS.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
