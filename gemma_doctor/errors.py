"""The one exception that users see: what went wrong, and what to do about it."""

from __future__ import annotations


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
