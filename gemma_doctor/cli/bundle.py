"""`gemma-doctor bundle`: what a bug report needs, in one file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemma_doctor.cli import options
from gemma_doctor.cli.deadline import deadline_or_error
from gemma_doctor.cli.figures import drawn
from gemma_doctor.cli.options import Word, Words, option, switch
from gemma_doctor.cli.output import Destination, aside, say, write
from gemma_doctor.errors import DoctorError

if TYPE_CHECKING:
    from gemma_doctor.bundle import Keep
    from gemma_doctor.finding import Report
    from gemma_doctor.settings import Progress, Settings

OWN = ("output", "force", "with_prompt", "with_paths")
DEFAULT = "bundle.zip"


def bundle(
    subject: options.Subject = None,
    output: Annotated[
        Word, typer.Option("-o", "--output", metavar="FILE", show_default=False, help=f"Write it there. [{DEFAULT}]")
    ] = None,
    force: Annotated[bool, switch("--force", "Overwrite FILE.")] = False,
    with_prompt: Annotated[
        bool, switch("--with-prompt", "Run the prompts as they are; without it, others of the same length are run.")
    ] = False,
    with_paths: Annotated[bool, switch("--with-paths", "Leave paths and names of files in.")] = False,
    config: options.Config = None,
    weights: options.Weights = None,
    offline: options.Offline = False,
    revision: options.Revision = None,
    prompt: options.Prompts = None,
    prompt_file: options.PromptFiles = None,
    chat: options.Chats = None,
    max_new_tokens: Annotated[Word, option("N", "Cap on the long generation. [across the window]")] = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    attn_implementation: options.AttnImplementation = None,
    expect: Annotated[
        Word, option("PRESET", "Hold the configuration against this preset: a mismatch is an error.")
    ] = None,
    seed: options.Seed = None,
    routes: Annotated[Words, option("ROUTES", "Ways of generating that are in use. [see list]")] = None,
    depth: Annotated[Word, option("quick|default|deep", "Routes to look at, as for check. [default]")] = None,
    select: Annotated[Words, option("IDS", "Run only these checks or groups, e.g. mask,rope-theta.")] = None,
    ignore: Annotated[Words, option("IDS", "Leave these checks or groups out.")] = None,
    checks_dir: options.ChecksDir = None,
    no_plugins: options.NoPlugins = False,
    timeout: options.Timeout = None,
    quiet: Annotated[bool, switch("-q --quiet", "No progress.")] = False,
    debug: options.Debug = False,
) -> None:
    """Write a bug report, with a script that shows the fault.

    Exit code: 0 it was written, whatever was found; 2 it was not.
    """
    given = {name: value for name, value in locals().items() if value not in (None, False, [])}
    own = {name: given.pop(name) for name in OWN if name in given}
    from gemma_doctor.bundle import Keep
    from gemma_doctor.settings import resolve

    path = str(own.get("output", DEFAULT))
    if Path(path).expanduser().exists() and "force" not in own:
        raise DoctorError(f"--output {path}: is there already", "--force overwrites it")
    settings = resolve(given, os.environ)
    keep = Keep(prompts="with_prompt" in own, paths="with_paths" in own)
    with options.ending(settings.debug), Destination(path) as destination:
        report, content, left_out = _content(settings, keep)
        from gemma_doctor.bundle import zipped

        data = zipped(content)
        destination.write(data)
        write(_in_words(path, content, len(data), left_out))
    raise typer.Exit(130 if report.interrupted else 0)


def _content(settings: Settings, keep: Keep) -> tuple[Report, dict[str, bytes], list[str]]:
    """Examine, and make the files. Returns the report as it may be shown, the files, and what is not in them."""
    progress: Progress = (lambda line: None) if settings.quiet else say
    with aside():
        from gemma_doctor import bundle, diagnosis, reproduction, subject

        asked = bundle.to_examine(settings, keep)
        patient = subject.resolve(asked)
        redact = bundle.redactor_of(asked, patient, keep)
        with deadline_or_error(asked.timeout):
            examined = diagnosis.diagnose(asked, progress)
        report, pictures = _drawn(bundle.publishable(examined, patient, redact, keep))
        written = reproduction.written(examined, patient, redact)
        folder = str(patient.folder.resolve()) if patient.folder else None
        attempts = reproduction.attempted(written, folder, progress)
        left_out = _left_out(settings, keep)
        return report, bundle.files(report, patient, redact, attempts, pictures, left_out), left_out


def _drawn(report: Report) -> tuple[Report, dict[str, bytes]]:
    """The report with its pictures named as they are in the bundle, and the pictures."""
    from gemma_doctor.bundle import with_figures

    with tempfile.TemporaryDirectory() as folder:
        report = with_figures(drawn(report, folder))
        return report, {one.name: one.read_bytes() for one in Path(folder).iterdir()}


def _left_out(settings: Settings, keep: Keep) -> list[str]:
    said = ["secrets, the names of user and machine, weights and tokenizer"]
    said += (
        [] if keep.paths else ["paths and names of files, the reasons of suppressions (--with-paths leaves paths in)"]
    )
    said += ["texts of the configuration that are no words of the library"]
    if settings.prompts and not keep.prompts:
        said += ["every prompt: others with as many words were run in their place (--with-prompt runs yours)"]
    return said


def _in_words(path: str, content: dict[str, bytes], size: int, left_out: list[str]) -> str:
    from gemma_doctor.report.escape import escape

    lines = [f"{escape(path)}: {size / 1000:,.0f} kB"]
    lines += [f"  {name}" for name in content]
    lines += [f"left out: {one}" for one in left_out]
    return "\n".join([*lines, "look through it before you send it", ""])
