"""JSON files that should hold a mapping, written by others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gemma_doctor.errors import DoctorError, in_one_line

# Characters. The index of a thousand shards has a few millions.
LONGEST = 64_000_000


class TooLong(Exception):
    """A file has more than anybody would write."""


def limited_text(path: Path) -> str:
    """A UTF-8 text, but no more than LONGEST: devices have no end. Pipes (`<(command)`) are files like others.

    Raises:
        OSError, UnicodeDecodeError: as `open` and `read` do.
        TooLong: there is more.
    """
    with path.open(encoding="utf-8") as file:
        text = file.read(LONGEST + 1)
    if len(text) > LONGEST:
        raise TooLong(f"longer than {LONGEST:,} characters")
    return text


def read_mapping(path: Path, hint: str) -> dict[str, Any]:
    """The mapping in a JSON file.

    Raises:
        DoctorError: it cannot be read, is not JSON, or holds something else.
    """
    try:
        mapping = json.loads(limited_text(path))
    except TooLong as error:
        raise DoctorError(f"{path}: {error}", hint) from None
    except OSError as error:
        raise DoctorError(f"{path}: cannot be read ({error.strerror})", hint) from None
    except (ValueError, RecursionError) as error:
        raise DoctorError(f"{path}: not JSON ({in_one_line(error)})", hint) from None
    if not isinstance(mapping, dict):
        raise DoctorError(f"{path}: no mapping, but a {type(mapping).__name__}", hint)
    return mapping
