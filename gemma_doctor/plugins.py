"""Where checks of others come from: installed distributions, and folders that a user names.

Both have the same layout, a folder per group with a file per check. A distribution names each of its folders by an
entry point, whose name is the group and whose value is the package: `mask = "acme_checks.mask"`. A module in place of
the package is a single check. Files that begin with an underscore are what checks share; `from ._shared import x` finds
them in both cases.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.metadata
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemma_doctor.check import GROUPS
from gemma_doctor.errors import DoctorError, TimedOut, in_one_line, suggest
from gemma_doctor.members import member_names

ENTRY_POINTS = "gemma_doctor.checks"
# In front of the hash of a folder: the package that stands for it.
FOLDER_PACKAGE = "_gemma_doctor_checks_dir_"
LAYOUT = "a check stands in the folder of its group, as in DIR/mask/my_check.py"


@dataclass(frozen=True)
class Candidate:
    """A module that should be a check. It is not imported yet.

    Attributes:
        module: its full name.
        group: of the reading path.
        source: a distribution with its version, or a folder.
        hint: what to do if it is none.
    """

    module: str
    group: str
    source: str
    hint: str

    @property
    def id(self) -> str:
        return self.module.rpartition(".")[2].replace("_", "-")

    @property
    def place(self) -> str:
        """For messages: the source, and the module or file in it."""
        if not self.module.startswith(FOLDER_PACKAGE):
            return f"{self.source}: {self.module}"
        return str(Path(self.source, *self.module.split(".")[1:])) + ".py"

    def load(self) -> types.ModuleType:
        """Import it.

        Raises:
            DoctorError: it cannot be imported.
        """
        with blamed_on(self.place, self.hint):
            return importlib.import_module(self.module)


@contextlib.contextmanager
def blamed_on(place: str, hint: str) -> Iterator[None]:
    """Whatever the code of others raises in the block becomes one line, SystemExit too: it must not end the run.

    Raises:
        DoctorError: it raised something.
    """
    try:
        yield
    except (DoctorError, KeyboardInterrupt, TimedOut):
        raise
    except BaseException as error:
        raise DoctorError(f"{place}: {type(error).__name__}: {in_one_line(error)}", hint) from error


def in_distributions() -> Iterator[Candidate]:
    """What installed distributions offer. Packages of checks are imported, the checks themselves are not.

    Raises:
        DoctorError: an entry point's name is no group, or its package cannot be imported or is empty.
    """
    with blamed_on("entry points of the installed distributions", "--no-plugins does without them"):
        points = sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda one: (one.value, one.name))
    for point in points:
        about = point.dist
        source = f"{about.name} {about.version}" if about is not None else "an installed distribution"
        hint = f"mend or uninstall {about.name if about is not None else source}; --no-plugins leaves its checks out"
        what = f"{source}: entry point {point.name} = {point.value}"
        if point.name not in GROUPS:
            raise DoctorError(f"{what}: {_no_group(point.name)}", hint)
        with blamed_on(what, hint):
            package = importlib.import_module(point.value)
        if not hasattr(package, "__path__"):
            yield Candidate(point.value, point.name, source, hint)
            continue
        names = [*member_names(package.__path__)]
        if not names:
            raise DoctorError(f"{what}: there is no check in it", hint)
        yield from (Candidate(f"{point.value}.{name}", point.name, source, hint) for name in names)


def in_folders(folders: Sequence[str]) -> Iterator[Candidate]:
    """What the folders of --checks-dir hold.

    Raises:
        DoctorError: there is no such folder, it has no check, or a file stands in no group.
    """
    for path in dict.fromkeys(map(_folder, folders)):
        found = in_folder(path)
        if not found:
            raise DoctorError(f"--checks-dir {_shown(path)}: there is no check in it", LAYOUT)
        yield from found


def in_folder(path: Path) -> list[Candidate]:
    """What one folder holds.

    Args:
        path: an absolute one.

    Raises:
        DoctorError: a file stands in no group, or its name is none.
    """
    package, hint = _package_of(path), "mend it, or leave this --checks-dir out"
    return [
        Candidate(f"{package}.{group.name}.{name}", group.name, _shown(path), hint)
        for group in _groups_in(path)
        for name in _files_in(group)
    ]


def _no_group(name: str) -> str:
    return f"there is no group {name!r}{suggest(name, GROUPS)} (groups: {', '.join(GROUPS)})"


def _folder(named: str) -> Path:
    try:
        path = Path(named).expanduser().resolve()
        if path.is_dir():
            return path
    except (OSError, RuntimeError, ValueError):  # links in a circle, a home that is none, a null byte
        pass
    raise DoctorError(f"--checks-dir {named}: there is no such folder", LAYOUT)


def _shown(path: Path) -> str:
    """Relative to the working folder, where it lies in it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _groups_in(path: Path) -> Iterator[Path]:
    """The folders of groups. What looks like a check and would be passed over without a word is refused."""
    for entry in sorted(path.iterdir()):
        if entry.name.startswith(("_", ".")) or entry.name == "tests":
            continue
        if entry.suffix == ".py":
            raise DoctorError(f"{_shown(entry)}: stands in no group's folder", f"{LAYOUT}; helpers begin with _")
        if entry.name in GROUPS and entry.is_dir():
            yield entry
        elif entry.is_dir() and any(entry.glob("*.py")):
            raise DoctorError(f"{_shown(entry)}: {_no_group(entry.name)}", f"{LAYOUT}; folders of helpers begin with _")


def _files_in(group: Path) -> Iterable[str]:
    for entry in sorted(group.glob("*.py")):
        if not entry.stem.isidentifier():
            raise DoctorError(f"{_shown(entry)}: is no name of a Python module", "use lower case and underscores")
    return member_names([str(group)])


def _package_of(path: Path) -> str:
    """A package of our own that stands for a folder: nothing is put on sys.path, and no name is taken from anyone."""
    name = FOLDER_PACKAGE + hashlib.sha256(str(path).encode()).hexdigest()[:12]
    if name not in sys.modules:
        package = types.ModuleType(name, f"Checks of {path}.")
        package.__path__ = [str(path)]
        sys.modules[name] = package
    importlib.invalidate_caches()  # a file may have been written since the folder was last looked at
    return name
