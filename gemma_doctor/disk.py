"""Files, and room for them, asked for before anything large is written.

Sizes are decimal, as disks and downloads are sold.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from gemma_doctor.errors import DoctorError


def require_space(place: Path, needed: int, what: str, variable: str) -> None:
    """Refuse before anything is written what would not fit.

    Args:
        place: a folder, which need not exist yet.
        needed: bytes.
        what: will be written there.
        variable: of the environment, which puts it elsewhere.

    Raises:
        DoctorError: there is less room.
    """
    there = next((folder for folder in (place, *place.absolute().parents) if folder.is_dir()), Path("/"))
    free = shutil.disk_usage(there).free
    if needed > free:
        raise DoctorError(
            f"{what}: {in_words(needed)}, and {place} has {in_words(free)} free",
            f"make room, or set {variable} to a folder with more",
        )


def in_words(size: int) -> str:
    """ "1.2 GB", "250 MB"."""
    return f"{size / 1e9:.1f} GB" if size >= 10**9 else f"{size / 1e6:.0f} MB"


def is_file(path: Path) -> bool:
    """Names that no file can have (too long, with a null character) are no files."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
