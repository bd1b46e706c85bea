"""The end of the time that --timeout allows."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from gemma_doctor.errors import DoctorError, TimedOut


@contextmanager
def deadline_or_error(seconds: float | None) -> Iterator[None]:
    """A deadline for what has nothing to say before it is done.

    Raises:
        DoctorError: the time is over.
    """
    try:
        with deadline(seconds):
            yield
    except TimedOut as late:
        raise DoctorError(f"{late}, before anything was known", "give it more time: --timeout SECONDS") from None


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Raise TimedOut in the body when the time is over. It comes between two Python instructions: not within one
    forward of a single module, however long that takes.

    Raises:
        DoctorError: this system, or this thread, has no alarm signal.
    """
    if seconds is None:
        yield
        return
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        raise DoctorError("--timeout needs a POSIX system", "leave it out, and let the caller end the run")

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimedOut(seconds)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
