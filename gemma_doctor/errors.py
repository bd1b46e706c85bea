"""What users see when an examination cannot be made or ends early: what went wrong, and what to do about it."""

from __future__ import annotations

import contextlib
import difflib
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path


class DoctorError(Exception):
    """The examination cannot be made (exit code 2). Shown as two lines, never as a traceback.

    Args:
        message: one line, what is wrong.
        hint: one line, what to do.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class TimedOut(BaseException):
    """The time that --timeout allows is over.

    Not an `Exception`: a pass turns the exceptions of the subject's own forward into findings, and the end of the time
    is none of them. `diagnose` catches it, as it catches KeyboardInterrupt, and skips the checks that are not done.

    Args:
        seconds: the time that was allowed.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g} s")


def suggest(word: str, known: Iterable[str]) -> str:
    """ "; did you mean X?" or the empty string."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def in_one_line(error: BaseException, longest: int = 300) -> str:
    """What an exception says, or its type if it says nothing, without line breaks and cut to `longest` characters."""
    try:
        said = " ".join(str(error).split())
    except Exception:  # other people's exceptions may not even be able to say what they are
        said = ""
    said = said or type(error).__name__
    return said if len(said) <= longest else f"{said[:longest]} ..."


def is_ours(error: BaseException) -> bool:
    """It was raised by this tool's own code, not in what it runs."""
    raised_in = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    return Path(__file__).parent in raised_in.parents


@contextlib.contextmanager
def one_line(what: str, hint: str) -> Iterator[None]:
    """Whatever a library raises in the block becomes one line: `what`, then what the library says.

    Raises:
        DoctorError: an exception of any kind was raised; those that are DoctorErrors already come through.
    """
    try:
        yield
    except DoctorError:
        raise
    except Exception as error:
        raise DoctorError(f"{what}: {in_one_line(error)}", hint) from error
