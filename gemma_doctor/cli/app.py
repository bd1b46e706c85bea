"""The typer app, and its own errors in the form of all others: what is wrong, what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

import gemma_doctor
from gemma_doctor.cli import (
    advisories,
    bundle,
    check,
    diff,
    drill,
    explain,
    facts,
    heatmap,
    listing,
    new_check,
    plan,
    presets,
    schema,
)
from gemma_doctor.errors import DoctorError, suggest

app = typer.Typer(
    help="What does the token at position p really read? Examines a Gemma model, or any decoder with sliding-window "
    "layers, and says which link between tokens and logits is broken.",
    epilog="Exit codes: 0 nothing found, 1 findings, 2 could not examine, 130 interrupted.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: dict[str, Callable[..., None]] = {
    "check": check.check,
    "drill": drill.drill,
    "heatmap": heatmap.heatmap,
    "plan": plan.plan,
    "facts": facts.facts,
    "diff": diff.diff,
    "bundle": bundle.bundle,
    "list": listing.list_checks,
    "explain": explain.explain,
    "new-check": new_check.new_check,
    "presets": presets.list_presets,
    "advisories": advisories.advisories,
    "schema": schema.schema,
}
for name, function in COMMANDS.items():
    app.command(name)(function)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"gemma-doctor {gemma_doctor.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options that belong to no command."""


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code.

    Raises:
        DoctorError: the command line is wrong, or the command says so.
        KeyboardInterrupt: interrupted outside an examination.
    """
    word = next((argument for argument in arguments if not argument.startswith("-")), None)
    if word is not None and word not in COMMANDS:
        raise DoctorError(f"there is no command {word!r}{suggest(word, COMMANDS)}", "gemma-doctor --help shows them")
    command: Any = typer.main.get_command(app)
    try:
        code = command.main(args=arguments or ["--help"], prog_name="gemma-doctor", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as ended:  # so typer ends when it completes or shows completions; its 1 would mean findings
        return 2 if ended.code or word is not None else 0
    except Exception as error:
        # typer stands on click, and newer releases on a copy of their own: known by what it has, not by its class
        if not hasattr(error, "format_message"):
            raise
        raise _usage_error(error) from None
    if not arguments:
        return 2  # a gate that forgot its command must not pass
    if word is None and code:  # no command, so no findings: completions that cannot be installed
        return 2
    return code if isinstance(code, int) else 0


def _usage_error(error: Any) -> DoctorError:
    context = error.ctx
    path = context.command_path if context else "gemma-doctor"
    message = " ".join(error.format_message().split()).rstrip(".")
    if hasattr(error, "possibilities") and context:
        options = [name for parameter in context.command.params for name in parameter.opts]
        message = f"there is no option {error.option_name}{suggest(error.option_name, options)}"
    return DoctorError(message[:1].lower() + message[1:], f"{path} --help shows what it takes")
