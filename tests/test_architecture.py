"""The shape of the house: who may import whom, and that the built package holds every folder."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from gemma_doctor import registry

ROOT = Path(__file__).parent.parent
CHECK_FILES = sorted(path for path in (ROOT / "checks").rglob("*.py") if path.name != "__init__.py")
ALLOWED_IN_CHECKS = {"check", "evidence", "finding", "oracle", "parity"}


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", CHECK_FILES, ids=lambda path: path.stem)
def test_a_check_imports_numpy_the_standard_library_and_five_of_our_modules(path: Path) -> None:
    for name in imports_of(path):
        first, *rest = name.split(".")
        if first == "gemma_doctor":
            assert rest[0] in ALLOWED_IN_CHECKS, name
        else:
            assert first == "numpy" or first in sys.stdlib_module_names, name


def test_finding_imports_nothing_of_ours() -> None:
    assert not [name for name in imports_of(ROOT / "gemma_doctor/finding.py") if name.startswith("gemma_doctor")]


@pytest.mark.parametrize("path", sorted((ROOT / "gemma_doctor/evidence").glob("*.py")), ids=lambda path: path.stem)
def test_evidence_imports_no_torch(path: Path) -> None:
    assert not {"torch", "transformers"} & {name.split(".")[0] for name in imports_of(path)}


@pytest.mark.parametrize(
    "path",
    sorted([*(ROOT / "gemma_doctor/report").glob("*.py"), *(ROOT / "gemma_doctor/charts").glob("*.py")]),
    ids=lambda path: path.stem,
)
def test_reports_and_capture_do_not_know_each_other(path: Path) -> None:
    assert not [name for name in imports_of(path) if name.startswith(("gemma_doctor.capture", "torch", "transformers"))]


def test_only_compat_asks_for_the_release() -> None:
    asks = re.compile(r"(?<!gemma_doctor)\.__version__|\bVersion\(|\brelease\(\) *[<>=!]=?")
    for path in (*(ROOT / "gemma_doctor").rglob("*.py"), *CHECK_FILES):
        if "compat" not in path.parts:
            assert not asks.search(path.read_text(encoding="utf-8")), path


def test_every_folder_is_packaged() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    folders = {
        ".".join(("gemma_doctor", *path.parent.relative_to(base).parts))
        if base.name == "gemma_doctor"
        else ".".join(("gemma_doctor", "checks", *path.parent.relative_to(base).parts))
        for base in (ROOT / "gemma_doctor", ROOT / "checks")
        for path in base.rglob("__init__.py")
        if "checks" not in path.relative_to(base).parts
    }
    assert set(settings["packages"]) == folders
    for name, folder in settings["package-dir"].items():
        assert (ROOT / folder / "__init__.py").is_file(), name


def test_the_link_to_the_checks_is_relative() -> None:
    link = ROOT / "gemma_doctor" / "checks"
    assert link.is_symlink()
    assert link.readlink() == Path("../checks")


def test_every_check_file_is_registered() -> None:
    assert {one.id for one in registry.built_in()} == {path.stem.replace("_", "-") for path in CHECK_FILES}


def test_every_check_says_what_it_needs_and_why_it_exists() -> None:
    for one in registry.built_in():
        assert one.needs, one.id
        assert one.title.endswith("."), one.id


def test_the_registry_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from gemma_doctor import registry; registry.built_in();"
        "print({'torch', 'transformers'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"
