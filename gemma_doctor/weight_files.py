"""Which safetensors files the library loads a model from: one, else those that an index names. No torch here.

Others (consolidated.safetensors, an adapter's, folders of other formats) are the same weights once more, or no part of
the model.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gemma_doctor.disk import is_file
from gemma_doctor.errors import DoctorError
from gemma_doctor.json_file import read_mapping

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
SKELETON_WILL_DO = "--weights skeleton examines the configuration without them"


def are_named(folder: Path) -> bool:
    """The folder holds weights that may be read, or an index of some."""
    return any((folder / name).is_file() for name in (WHOLE, INDEX))


def in_index(path: Path) -> set[str]:
    """The files that an index of weights names; the names are whatever its author wrote.

    Raises:
        DoctorError: it is none.
    """
    named = read_mapping(path, SKELETON_WILL_DO).get("weight_map")
    if not isinstance(named, dict) or not named or not all(isinstance(one, str) for one in named.values()):
        raise DoctorError(f"{path}: not an index of weights", SKELETON_WILL_DO)
    return set(named.values())


def lacking(folder: Path) -> str:
    """What is missing of the weights that the folder's index names, in words; "" if nothing is.

    Raises:
        DoctorError: there is neither a file of weights nor a readable index of some.
    """
    if (folder / WHOLE).is_file():
        return ""
    named = in_index(folder / INDEX)
    missing = sorted(name for name in named if not is_file(folder / name))
    if not missing:
        return ""
    return f"{len(missing)} of {len(named)} weight files are missing, {missing[0][:100]!r} among them"


def of(published: Iterable[str], index: set[str]) -> list[str]:
    """Those among a repository's files that are its weights.

    Args:
        published: names of all files.
        index: what its index names, empty if it has none.
    """
    names = {*published}
    return [WHOLE] if WHOLE in names else sorted(index & names)
