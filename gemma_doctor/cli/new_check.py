"""`gemma-doctor new-check NAME`: a check and its test, written and passing, for one's own folder or distribution."""

from __future__ import annotations

import contextlib
import json
import keyword
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from gemma_doctor.cli.options import option
from gemma_doctor.cli.output import write
from gemma_doctor.errors import DoctorError, suggest
from gemma_doctor.report.escape import escape

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
TESTS = Path("tests")


def new_check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Id of the new check, as in my-check.")],
    group: Annotated[str, option("GROUP", "Layer of the reading path that it looks at. [mask]")] = "mask",
    dir: Annotated[str, option("DIR", "Folder of your checks; it is made where there is none. [checks]")] = "checks",
) -> None:
    """Write a check and its test, both to be filled in.

    DIR/GROUP/NAME.py is what --checks-dir DIR finds, and what the package of a distribution may hold.
    """
    from gemma_doctor import check_template

    check_id, folder = name.replace("_", "-"), Path(dir).expanduser()
    _require_new(check_id, group, folder)
    stem = check_id.replace("-", "_")
    words = {"name": stem, "id": check_id, "folder": _as_code(folder)}
    check, test = folder / group / f"{stem}.py", TESTS / f"test_{stem}.py"
    _write_new({check: check_template.CHECK.substitute(words), test: check_template.TEST.substitute(words)})
    write(_what_next(check, test, folder, check_id))


def _require_new(check_id: str, group: str, folder: Path) -> None:
    """Refuse what could not be a check, and what is one already.

    Raises:
        DoctorError: no such group, a name that is none, or one that is taken; a folder with other files.
    """
    from gemma_doctor.check import GROUPS
    from gemma_doctor.check_template import USED
    from gemma_doctor.plugins import in_folder
    from gemma_doctor.registry import all_ids

    if group not in GROUPS:
        raise DoctorError(
            f"--group: there is no group {group!r}{suggest(group, GROUPS)}", f"one of {', '.join(GROUPS)}"
        )
    if not NAME.fullmatch(check_id) or keyword.iskeyword(check_id):
        raise DoctorError(f"{check_id!r} is no name for a check", "lower-case words joined by dashes, as in my-check")
    if check_id.replace("-", "_") in USED:
        raise DoctorError(f"{check_id!r} is a name that a check itself uses", "choose one that says what it looks at")
    taken = {*all_ids(plugins=False), *GROUPS}
    with contextlib.suppress(DoctorError):  # what is wrong with the checks of others is no matter here
        taken.update(all_ids())
    if folder.is_dir():
        taken.update(one.id for one in in_folder(folder.resolve()))
    if check_id in taken:
        raise DoctorError(f"the name {check_id!r} is taken", "choose another one; gemma-doctor list shows them all")


def _as_code(folder: Path) -> str:
    """How the test says where the checks stand: from its own place, if they lie below the working folder."""
    path, here = folder.resolve(), Path.cwd().resolve()
    if not path.is_relative_to(here):
        return f"Path({json.dumps(str(path))})"
    below = path.relative_to(here).as_posix()
    return "Path(__file__).parent.parent" + (f" / {json.dumps(below)}" if below != "." else "")


def _write_new(texts: Mapping[Path, str]) -> None:
    """Write all files, or none.

    Raises:
        DoctorError: one is there already, or cannot be written.
    """
    for path in texts:
        if path.exists():
            raise DoctorError(f"{path}: is there already, and is left as it is", "choose another name, or move it")
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise DoctorError(f"{path}: cannot be written ({error.strerror})", "choose another --dir") from None


def _what_next(check: Path, test: Path, folder: Path, check_id: str) -> str:
    from gemma_doctor.registry import FOLDER

    # those of our own folder are found by themselves
    flag = "" if folder.resolve() == FOLDER.resolve() else f" --checks-dir {shlex.quote(str(folder))}"
    lines = (
        f"wrote {check}",
        f"wrote {test}",
        "It works as it is. Fill it in, and try it:",
        f"  pytest {shlex.quote(str(test))}",
        f"  gemma-doctor list{flag}",
        f"  gemma-doctor check{flag} --select {check_id}",
    )
    return "".join(f"{escape(line)}\n" for line in lines)
