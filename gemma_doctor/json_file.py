"""JSON files that should hold a mapping, written by others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gemma_doctor.errors import DoctorError, in_one_line


def read_mapping(path: Path, hint: str) -> dict[str, Any]:
    """The mapping in a JSON file.

    Raises:
        DoctorError: it cannot be read, is not JSON, or holds something else.
    """
    try:
        mapping = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DoctorError(f"{path}: cannot be read ({error.strerror})", hint) from None
    except (ValueError, RecursionError) as error:
        raise DoctorError(f"{path}: not JSON ({in_one_line(error)})", hint) from None
    if not isinstance(mapping, dict):
        raise DoctorError(f"{path}: no mapping, but a {type(mapping).__name__}", hint)
    return mapping
