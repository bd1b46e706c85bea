"""Where a report goes: a terminal, a pipe or a file. Stdout gets the report and nothing else."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TextIO

from gemma_doctor.errors import DoctorError
from gemma_doctor.report.escape import escape


def wants_color(setting: str, environment: Mapping[str, str], is_terminal: bool) -> bool:
    """True if ANSI colours are to be written: --color, then NO_COLOR, then FORCE_COLOR, then whether it is a terminal.

    Args:
        setting: "auto", "always" or "never".
        environment: usually os.environ.
        is_terminal: the report goes to one.
    """
    if setting != "auto":
        return setting == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return environment["FORCE_COLOR"] != "0"
    return is_terminal and environment.get("TERM") != "dumb"


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is, None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


class Escaped(io.TextIOBase):
    """A stream for what libraries print: what they quote from configurations cannot act on the terminal.

    Args:
        stream: where it goes; line breaks, tabs and the carriage returns of progress bars go through.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        parts = re.split(r"([\r\n\t]+)", text)
        self._stream.write("".join(part if part.isspace() else escape(part) for part in parts))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Whatever a library prints on the way goes to stderr, escaped: neither into a report nor at the terminal."""
    stream = Escaped(sys.stderr)
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        yield


def say(line: str) -> None:
    """One line of progress, to stderr."""
    print(escape(line), file=sys.stderr, flush=True)


def write(text: str) -> None:
    """Write to stdout. A reader that went away (`| head`) is no error; the exit code stays what it is.

    Raises:
        DoctorError: stdout cannot be written to for another reason.
    """
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes once more on exit; give it something that takes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise DoctorError(f"stdout: the report cannot be written ({error.strerror})", "see where it leads") from None


class Destination:
    """Stdout or a file. A file is made before the run, beside its final place, and moved there when it is complete.

    Args:
        output: the path that was named, None for stdout.
        flag: that named it.

    Raises:
        DoctorError: it is no path; on entering, the file cannot be written.
    """

    def __init__(self, output: str | None, flag: str = "--output") -> None:
        self.shown = f"{flag} {output}"
        try:
            self.path = Path(output).expanduser().resolve() if output is not None else None
        except (OSError, RuntimeError):  # links in a circle, a home that is none
            raise DoctorError(f"{self.shown}: is no path", "name a file in an existing, writable folder") from None
        self.draft: Path | None = None

    def __enter__(self) -> Destination:
        if self.path is None or self._is_device():
            return self
        try:
            if self.path.is_dir():
                raise IsADirectoryError(21, "is a folder")
            handle, name = tempfile.mkstemp(prefix=".gemma-doctor.", dir=self.path.parent)
        except OSError as error:
            raise self._refused(error) from None
        os.close(handle)
        self.draft = Path(name)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.draft is not None:
            self.draft.unlink(missing_ok=True)

    def write(self, report: str | bytes) -> None:
        """Write the report: text, or a picture, which is for files only.

        Raises:
            DoctorError: the disk is full, or the place is gone.
        """
        if self.path is None:
            write(report if isinstance(report, str) else report.decode())
            return
        try:
            target = self.draft or self.path
            target.write_bytes(report if isinstance(report, bytes) else report.encode(errors="backslashreplace"))
            if self.draft is not None:
                mask = os.umask(0)
                os.umask(mask)
                self.draft.chmod(0o666 & ~mask)
                self.draft.replace(self.path)
                self.draft = None
        except OSError as error:
            raise self._refused(error) from None

    def _is_device(self) -> bool:
        """A pipe or /dev/null is written to as it is: a file must never take its place."""
        return self.path is not None and self.path.exists() and not self.path.is_file() and not self.path.is_dir()

    def _refused(self, error: OSError) -> DoctorError:
        return DoctorError(
            f"{self.shown}: cannot be written ({error.strerror})",
            "name a file in an existing, writable folder",
        )
