"""The docs say what the code says: pages that are made from it are current, and what they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import check_pages
from gemma_doctor.documentation import HEADINGS
from gemma_doctor.registry import built_in

ROOT = Path(__file__).parent.parent
PAGES = check_pages.pages()
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")


def test_there_is_a_page_for_each_check_and_no_other() -> None:
    assert {path.name for path in check_pages.FOLDER.iterdir()} == PAGES.keys()


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_current(name: str) -> None:
    found = (check_pages.FOLDER / name).read_text(encoding="utf-8")
    assert found == PAGES[name], f"make it anew: {check_pages.COMMAND}"


@pytest.mark.parametrize("check", built_in(), ids=lambda check: check.id)
def test_a_page_holds_every_heading_and_an_example(check: check_pages.Check) -> None:
    text = PAGES[f"{check.id}.md"]
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert headings[: len(HEADINGS)] == list(HEADINGS)
    assert headings[-1] == "An example"
    if check.id not in check_pages.NONE_HERE:
        first = check_pages.example_in(text).partition("```\n")[2].splitlines()[0]
        assert re.fullmatch(rf"(CAUSE|warning|note)  +{check.id}   .+", first)


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("docs/**/*.md")) + sorted(ROOT.glob("*.md")), ids=lambda path: path.name
)
def test_links_lead_to_files_that_are_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in LINK.findall(text):
        assert (path.parent / target).exists(), target


@pytest.mark.slow
def test_an_example_is_made_as_the_pages_say() -> None:
    """Its figures may differ from machine to machine; what it found may not."""
    made = dict(check_pages.examples({"mask-pattern", "bos-token"}))
    for check, said in made.items():
        first = said.partition("```\n")[2].splitlines()[0]
        assert first in PAGES[f"{check}.md"]
    assert made.keys() == {"mask-pattern", "bos-token"}
