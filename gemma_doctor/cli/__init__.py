"""The command line: parses, calls one function, renders, returns an exit code. Nothing heavy is imported here."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line.

    Args:
        arguments: without the program's name; those of the process if None.

    Returns:
        the exit code: 0, 1, 2 or 130. No exception leaves but SystemExit.
    """
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    _replace_closed_streams()
    try:
        from gemma_doctor.cli import app

        return app.run(given)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        return _explain(error)


def _replace_closed_streams() -> None:
    """A caller may have closed them (`>&-`); the exit code is still worth having."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115


def _explain(error: Exception) -> int:
    """What went wrong in one line, what to do in another. Python's own exit code would be 1, "the subject is sick"."""
    from gemma_doctor.errors import DoctorError
    from gemma_doctor.report.escape import escape

    if isinstance(error, DoctorError):
        message, hint = error.message, error.hint
    else:
        message = f"internal error, {type(error).__name__}: {error}"
        hint = "this is a fault of gemma-doctor; please report it with what check --debug prints"
    print(f"gemma-doctor: {escape(message)}", file=sys.stderr)
    if hint:
        print(f"  {escape(hint)}", file=sys.stderr)
    return 2
